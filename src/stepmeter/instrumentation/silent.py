"""Updates of which no hook tells, because `Optimizer.step` runs compiled.

Inside a compiled region a hook that does anything would be traced, so ours return at once there. What an update can't
hide is that its parameters have changed.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any


class SilentUpdates:
    """Watches one parameter of each optimizer that has not been heard of since something was compiled.

    Attributes:
        unheard: Those optimizers, by their weak reference, with the parameter and its version; empty in most programs.
    """

    __slots__ = ("unheard",)

    def __init__(self) -> None:
        self.unheard: dict[Any, tuple[Any, int]] = {}

    def listen(self, optimizers: Iterable[Any]) -> None:
        """Something has been compiled: it may be the step of any optimizer.

        Args:
            optimizers: Those that are alive.
        """
        for optimizer in optimizers:
            name = weakref.ref(optimizer)
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
            if parameters and name not in self.unheard:  # a step that is compiled in pieces listens several times
                self.unheard[name] = (weakref.ref(parameters[0]), _version(parameters[0]))

    def heard(self, optimizer: Any) -> None:
        """A hook has told of an optimizer: it does not run compiled."""
        self.unheard.pop(optimizer, None)

    def changed(self) -> list[Any]:
        """Which optimizers have changed their parameter since the last time.

        Returns:
            Their weak references.
        """
        found = []
        for optimizer, (parameter, version) in list(self.unheard.items()):
            alive = parameter()
            if alive is None:
                del self.unheard[optimizer]
            elif _version(alive) != version:
                self.unheard[optimizer] = (parameter, _version(alive))
                found.append(optimizer)
        return found


def _version(parameter: Any) -> int:
    """How often a tensor has been changed in place; autograd counts it."""
    return int(parameter._version)  # noqa: SLF001 - no public way
