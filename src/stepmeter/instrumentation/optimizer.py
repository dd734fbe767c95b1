"""Updates: torch's hooks around every `Optimizer.step`, and `GradScaler.step`, which may skip one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final
from weakref import ref

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from stepmeter.capture.clock import monotonic_ns
from stepmeter.conventions.phases import OPTIMIZER, PHASES
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.closing import UPDATE
from stepmeter.instrumentation.patch import Patch

_OPTIMIZER: Final = PHASES.index(OPTIMIZER)
_is_compiling = torch.compiler.is_dynamo_compiling  # dynamo takes it for True; otherwise it is one short call


def patches(boundaries: Boundaries, parameters_added: Callable[[bool], None]) -> list[Patch | Hooks]:
    """The patches on optimizers.

    Args:
        boundaries: Where updates are told.
        parameters_added: Called when an optimizer gets parameters; True when it has just been made.

    Returns:
        The hooks on steps, one patch on scalers, two on the adding of parameters.
    """
    return [
        Hooks(boundaries),
        Patch(GradScaler, "step", functools.partial(_told_scaler_step, boundaries)),
        Patch(Optimizer, "__init__", functools.partial(_told_after, boundaries, parameters_added, True)),  # noqa: FBT003 - the one argument
        Patch(Optimizer, "add_param_group", functools.partial(_told_after, boundaries, parameters_added, False)),  # noqa: FBT003 - likewise
    ]


class Hooks:
    """The two global hooks; they also reach optimizers that were made before us.

    Args:
        boundaries: Where updates are told.
    """

    __slots__ = ("_handles", "functions")

    def __init__(self, boundaries: Boundaries) -> None:
        self.functions = (_before(boundaries), _after(boundaries))
        self._handles: list[Any] = []

    def on(self) -> None:
        """Register them; harmless when they are."""
        if self._handles:
            return
        before, after = self.functions
        self._handles.append(register_optimizer_step_pre_hook(before))
        self._handles.append(register_optimizer_step_post_hook(after))

    def off(self) -> None:
        """Remove them."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _before(boundaries: Boundaries) -> Any:
    running, updates, log = boundaries.optimizers, boundaries.updates, boundaries.log

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if _is_compiling() or get_ident() != boundaries.owner:
            return
        try:
            name = ref(optimizer)
            if running or boundaries.cut is not None or name in updates:
                boundaries.optimizer_repeats(name)
            timer = boundaries.timer
            mark = None if timer is None else timer.mark()
            running.append((name, monotonic_ns(), len(log), mark))
        except Exception as error:
            boundaries.fault("optimizer", error)

    return before


def _after(boundaries: Boundaries) -> Any:
    running, updates, log = boundaries.optimizers, boundaries.updates, boundaries.log

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if _is_compiling() or get_ident() != boundaries.owner:
            return
        end_ns = monotonic_ns()
        try:
            name = ref(optimizer)
            while running and running[-1][0] is not name:
                running.pop()  # it raised
            if len(running) == 1:
                _, start_ns, _, mark = running[0]
                timer = boundaries.timer
                updates.append(name)
                if boundaries.in_backward:
                    log.append((UPDATE, start_ns, end_ns, None))
                else:
                    pending = None if timer is None or mark is None else timer.pair(mark)
                    log.append((_OPTIMIZER, start_ns, end_ns, pending))
            del running[-1:]  # last: another thread may ask whether this one trains
        except Exception as error:
            boundaries.fault("optimizer", error)

    return after


def _told_scaler_step(boundaries: Boundaries, original: Any) -> Any:
    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if get_ident() != boundaries.owner:
            return original(self, optimizer, *args, **kwargs)
        begins(optimizer)
        result = original(self, optimizer, *args, **kwargs)
        ended(optimizer)
        return result

    def begins(optimizer: Any) -> None:
        try:
            boundaries.update_begins(ref(optimizer))
        except Exception as error:
            boundaries.fault("scaler", error)

    def ended(optimizer: Any) -> None:
        try:
            stepped = ref(optimizer)
            boundaries.flush()
            if not boundaries.has_stepped(stepped):  # no hook fires for a skipped update
                boundaries.updated(stepped, monotonic_ns())
        except Exception as error:
            boundaries.fault("scaler", error)

    return step


def _told_after(boundaries: Boundaries, tell: Callable[[bool], None], made: bool, original: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        try:
            tell(made)
        except Exception as error:
            boundaries.fault("roots", error)
        return result

    return call
