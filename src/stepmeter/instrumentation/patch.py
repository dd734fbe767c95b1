"""Changes with a way back: one replaced attribute, and several that are made all or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

_ABSENT: Final = object()


class Patch:
    """Replaces one attribute of a class or module.

    Args:
        owner: The class or module.
        name: The attribute.
        wrap: Makes the replacement from the original.
    """

    __slots__ = ("_original", "_replacement", "_wrap", "name", "owner")

    @property
    def functions(self) -> tuple[Any, ...]:
        """The replacement, once it is in place."""
        return () if self._replacement is _ABSENT else (self._replacement,)

    def __init__(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        self.owner = owner
        self.name = name
        self._wrap = wrap
        self._original: Any = _ABSENT
        self._replacement: Any = _ABSENT

    def on(self) -> None:
        """Put the replacement in place; harmless when it is there already."""
        if self._replacement is not _ABSENT and self.owner.__dict__.get(self.name) is self._replacement:
            return
        self._original = self.owner.__dict__.get(self.name, _ABSENT)
        self._replacement = self._wrap(getattr(self.owner, self.name))
        setattr(self.owner, self.name, self._replacement)

    def off(self) -> None:
        """Put the identical original back, unless someone has since put something of theirs over ours."""
        if self._replacement is _ABSENT or self.owner.__dict__.get(self.name) is not self._replacement:
            return
        if self._original is _ABSENT:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self._original)
        self._original = self._replacement = _ABSENT


class Switch(Protocol):
    """A change to somebody's module, with an inverse."""

    def on(self) -> None:
        """Make it."""

    def off(self) -> None:
        """Undo it."""


def all_on(switches: Sequence[Switch]) -> None:
    """Make several changes, or none when one can't be made.

    Args:
        switches: The changes, made in this order.
    """
    done: list[Switch] = []
    try:
        for switch in switches:
            switch.on()
            done.append(switch)
    except BaseException:
        for switch in reversed(done):
            switch.off()
        raise
