"""Which modules are the roots of training: found, not asked for.

Every module above an optimized parameter is watched for one round of updates; those that were called outermost with
gradients on are the roots, and only they stay watched.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.optim import Optimizer

from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.forward import ForwardSlot
from stepmeter.instrumentation.patch import Patch

_EAGER_SCANS: Final = 4
"""Optimizers made at first are looked at once made, so that a loop without a loader shows its first forward; a scan
takes 25 to 75 ms, so later ones wait for a fetch or a step's end."""

_MISSED_SCANS: Final = (1, 10, 100, 1_000)
"""After which steps with a backward and no forward to look again: training without modules must not scan each step."""

_WATCHED_STEPS: Final = 16
"""Steps after which watching ends even if an optimizer has not stepped yet."""

_OPAQUE: Final = frozenset({"OptimizedModule", "DataParallel"})
"""Wrappers whose inside is left alone: dynamo traces one, the other runs copies of it on threads."""


class Roots:
    """Finds the roots and keeps their slots.

    Args:
        boundaries: Where forwards are told.
    """

    __slots__ = (
        "_boundaries",
        "_eager",
        "_marked",
        "_missed",
        "_optimizers",
        "_slots",
        "_watched_steps",
        "on_scan",
    )

    def __init__(self, boundaries: Boundaries) -> None:
        self._boundaries = boundaries
        self._slots: list[ForwardSlot] = []
        self._marked: weakref.WeakKeyDictionary[torch.nn.Module, ForwardSlot] = weakref.WeakKeyDictionary()
        self._optimizers: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._eager = _EAGER_SCANS
        self._missed = 0
        self._watched_steps: int | None = None
        self.on_scan: Any = None

    def slots(self) -> list[ForwardSlot]:
        """What stands in modules now.

        Returns:
            The slots of roots, and while roots are looked for of all modules above optimized parameters.
        """
        return [*self._slots, *self._marked.values()]

    def optimizers(self) -> list[Optimizer]:
        """The optimizers that were alive when last looked.

        Returns:
            Those of them that are alive now.
        """
        return list(self._optimizers)

    def parameters_added(self, made: bool) -> None:
        """An optimizer got parameters.

        Args:
            made: Whether it is complete; a group added to it is seen at the next fetch or step.
        """
        self._boundaries.stale = True
        if made:
            self._boundaries.recorder.arm()
        if made and self._eager > 0:
            self._eager -= 1
            self.scan()
            self._boundaries.stale = True  # wrappers such as DDP may still be put around the model

    def step_closed(self, missed_forward: bool) -> None:
        """A step is about to be published.

        Args:
            missed_forward: Whether it had a backward and no forward.
        """
        if self._watched_steps is not None:
            self._watched_steps += 1
            self._settle(self._watched_steps)
        if missed_forward:
            self._missed += 1
            if self._missed in _MISSED_SCANS:
                self._boundaries.stale = True
        if self._boundaries.stale and (missed_forward or not self._slots):
            self.scan()

    def scan(self) -> None:
        """Look for optimizers and for the modules above their parameters, and watch these."""
        self._boundaries.stale = False
        modules, optimizers = _alive()
        if not optimizers:
            return
        self._optimizers = weakref.WeakSet(optimizers)
        parameters = {id(p) for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]}
        owners = _above(modules, parameters)
        self._release()
        self._slots = [ForwardSlot(module, self._boundaries) for module in owners if module not in self._marked]
        for slot in self._slots:
            slot.on()
        self._watched_steps = 0
        self._boundaries.watching = True
        self._boundaries.warms_up()
        if self.on_scan is not None:
            self.on_scan(owners)

    def watch(self, module: torch.nn.Module) -> bool:
        """The program names a root itself.

        Args:
            module: The root.

        Returns:
            Whether it had not been named before.
        """
        if module in self._marked:
            return False
        for slot in [slot for slot in self._slots if slot.is_of(module)]:
            slot.off()
            self._slots.remove(slot)
        slot = self._marked[module] = ForwardSlot(module, self._boundaries)
        slot.on()
        if self.on_scan is not None:
            self.on_scan(list(module.modules()))
        return True

    def unwatch(self, module: torch.nn.Module) -> None:
        """A root that was named is left as it was; it may be found again.

        Args:
            module: The root.
        """
        slot = self._marked.pop(module, None)
        if slot is not None:
            slot.off()
            self._boundaries.stale = True

    def recompiled(self, module: torch.nn.Module) -> None:
        """`module.compile()` has taken a slot of ours: stand before it again.

        Args:
            module: The module.
        """
        for slot in self.slots():
            if slot.is_of(module):
                slot.on()

    def off(self) -> None:
        """Leave every slot as it was."""
        self._release()
        for slot in self._marked.values():
            slot.off()
        self._marked.clear()

    def _release(self) -> None:
        for slot in self._slots:
            slot.off()
        self._slots = []
        self._watched_steps = None
        self._boundaries.watching = False

    def _settle(self, steps: int) -> None:
        """Keep the roots only, once every optimizer has had its turn."""
        if not any(slot.called for slot in self.slots()):
            if steps >= _WATCHED_STEPS:
                self._release()
            return
        boundaries = self._boundaries
        waiting = any(not boundaries.has_stepped(weakref.ref(optimizer)) for optimizer in self._optimizers)
        if waiting and steps < _WATCHED_STEPS:
            return
        for slot in self._slots:
            if not slot.called:
                slot.off()
        self._slots = [slot for slot in self._slots if slot.called]
        self._watched_steps = None
        self._boundaries.watching = False


def patches(boundaries: Boundaries, roots: Roots) -> list[Patch]:
    """The patch on `Module.compile`, which uses the slot.

    Args:
        boundaries: Where failures are told.
        roots: What stands in slots.

    Returns:
        The one patch.
    """

    def recompiling(original: Any) -> Any:
        @functools.wraps(original)
        def compile(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A001 - it takes that method's place
            result = original(self, *args, **kwargs)
            try:
                roots.recompiled(self)
            except Exception as error:
                boundaries.fault("roots", error)
            return result

        return compile

    return [Patch(torch.nn.Module, "compile", recompiling)]


def _alive() -> tuple[list[torch.nn.Module], list[Optimizer]]:
    """Every module and optimizer that the garbage collector knows; after `gc.freeze()` those made since."""
    kinds: dict[type, int] = {}
    modules: list[torch.nn.Module] = []
    optimizers: list[Optimizer] = []
    for candidate in gc.get_objects():
        kind = kinds.get(type(candidate))  # not isinstance: proxies answer it by loading what they stand for
        if kind is None:
            kind = kinds[type(candidate)] = _kind(type(candidate))
        if kind == 1:
            modules.append(candidate)
        elif kind == 2:
            optimizers.append(candidate)
    return modules, [optimizer for optimizer in optimizers if "param_groups" in optimizer.__dict__]


def _kind(of: type) -> int:
    if issubclass(of, torch.nn.Module):
        return 0 if issubclass(of, torch.jit.ScriptModule) else 1
    return 2 if issubclass(of, Optimizer) else 0


def _above(modules: list[torch.nn.Module], parameters: set[int]) -> list[torch.nn.Module]:
    """The modules that hold one of the parameters, directly or below them, less what opaque wrappers hide."""
    parents: dict[int, list[torch.nn.Module]] = {}
    for module in modules:
        for child in _children(module):
            parents.setdefault(id(child), []).append(module)
    found: dict[int, torch.nn.Module] = {}
    waiting = [m for m in modules if any(id(p) in parameters for p in m.__dict__.get("_parameters", {}).values())]
    while waiting:
        module = waiting.pop()
        if id(module) not in found:
            found[id(module)] = module
            waiting += parents.get(id(module), [])
    hidden = _below([module for module in found.values() if type(module).__name__ in _OPAQUE])
    return [module for module in found.values() if id(module) not in hidden]


def _below(modules: list[torch.nn.Module]) -> set[int]:
    seen: set[int] = set()
    waiting = [child for module in modules for child in _children(module)]
    while waiting:
        module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            waiting += _children(module)
    return seen


def _children(module: torch.nn.Module) -> Iterable[torch.nn.Module]:
    return [child for child in module.__dict__.get("_modules", {}).values() if child is not None]
