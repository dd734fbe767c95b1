"""Forward: calls of root modules, timed in the slot that `nn.Module.compile` also uses.

Hooks on modules make torch take its slow path, show in checkpoints and break compiled regions; a replaced `__call__`
makes torch.compile recompile. `_compiled_call_impl` does none of that: dynamo goes past it, pickles leave it out.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any, Final

import torch

from stepmeter.capture.clock import monotonic_ns
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.closing import FORWARD_INDEX, LOG_LIMIT, ODD_FORWARD

SLOT: Final = "_compiled_call_impl"
_ABSENT: Final = object()


class ForwardSlot:
    """Stands in a module's slot and times its outermost calls.

    Copies of a module must not run the original's weights: this object copies and pickles as None. It holds its
    module weakly, so that `del model` frees memory as before.

    Args:
        module: The module.
        boundaries: Where its calls are told.

    Attributes:
        called: Whether an outermost call with gradients has been seen.
    """

    __slots__ = ("_boundaries", "_compiled", "_module", "_previous", "called")

    def __init__(self, module: torch.nn.Module, boundaries: Boundaries) -> None:
        self._boundaries = boundaries
        self._module = weakref.ref(module)
        self._previous: Any = _ABSENT
        self._compiled: Any = None
        self.called = False

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the module as torch would, timed where it is an outermost call."""
        module: Any = self._module()
        call = self._compiled or module._call_impl  # noqa: SLF001 - what torch itself calls at this place
        boundaries = self._boundaries
        if boundaries.in_forward or boundaries.in_backward or _compiler._is_compiling_flag:  # noqa: SLF001 - a call costs more
            return call(*args, **kwargs)
        if get_ident() != boundaries.owner:
            return self._call_elsewhere(call, args, kwargs)
        grad = _is_grad_enabled()
        timer, mark = boundaries.timer, None
        try:  # Ctrl-C may come at any place
            boundaries.in_forward = True
            try:
                if len(boundaries.log) > LOG_LIMIT:
                    boundaries.flush()
                if boundaries.silent.unheard:
                    boundaries.notice_updates()
                if timer is not None:
                    boundaries.forward_begins(grad)
                    mark = timer.mark()
            except Exception as error:
                boundaries.fault("forward", error)
            start_ns = monotonic_ns()
            result = call(*args, **kwargs)
            end_ns = monotonic_ns()
            pending = None if timer is None or mark is None else timer.pair(mark)
            training = module.training
            region = (FORWARD_INDEX, start_ns, end_ns, pending)
            plain = (grad and training) or boundaries.in_training_step
            boundaries.log.append(region if plain else (ODD_FORWARD, region, grad, training))
            boundaries.in_forward = False  # last: another thread may ask whether this one trains
        except BaseException:
            boundaries.failed()
            raise
        if grad and not self.called:
            self.called = True
        return result

    def _call_elsewhere(self, call: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call by another thread than the one that trains: an inference beside it, or that thread's successor."""
        start_ns = monotonic_ns()
        result = call(*args, **kwargs)
        boundaries, module = self._boundaries, self._module()
        if boundaries.owner and module is not None and module.training and _is_grad_enabled():
            boundaries.elsewhere = get_ident(), (FORWARD_INDEX, start_ns, monotonic_ns(), None), self.called
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        return None

    def __copy__(self) -> None:
        return None

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()

    def on(self) -> None:
        """Take the slot, before whatever `module.compile()` has put there."""
        module = self._module()
        if module is None or module.__dict__.get(SLOT) is self:
            return
        self._previous = module.__dict__.get(SLOT, _ABSENT)
        self._compiled = None if self._previous is _ABSENT else self._previous
        module.__dict__[SLOT] = self

    def off(self) -> None:
        """Leave the slot as it was, unless `module.compile()` has taken it meanwhile."""
        module = self._module()
        if module is None or module.__dict__.get(SLOT) is not self:
            return
        if self._previous is _ABSENT:
            del module.__dict__[SLOT]
        else:
            module.__dict__[SLOT] = self._previous

    def is_of(self, module: torch.nn.Module) -> bool:
        """Whether it is a module's.

        Args:
            module: The module.

        Returns:
            True for the one that it was made for.
        """
        return self._module() is module


_compiler: Any = torch.compiler
_is_grad_enabled = torch.is_grad_enabled
