"""Copies of batches from the host to the device: `Tensor.to` and `Tensor.cuda`.

Each call of a patched `Tensor.to` costs 0.2 µs however early it returns, so these stand only once a program is known to
train on a device.
"""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

import torch
from torch.nn import parameter

from stepmeter.capture.clock import monotonic_ns
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.patch import Patch
from stepmeter.instrumentation.undecided import Undecided


def patches(boundaries: Boundaries, kind: str = "cuda") -> list[Patch | Allowed]:
    """The patches on copies.

    Args:
        boundaries: Where copies are told.
        kind: Type of the device to which they go.

    Returns:
        Two patches, and their admission to parameters that have no shape yet.
    """
    to = Patch(torch.Tensor, "to", functools.partial(_timed, boundaries, kind, _goes_to))
    cuda = Patch(torch.Tensor, "cuda", functools.partial(_timed, boundaries, kind, _always))
    return [to, cuda, Allowed()]


class Allowed:
    """Lazy modules refuse every tensor function that is not on a list of theirs."""

    __slots__ = ("_added",)

    def __init__(self) -> None:
        self._added: list[Any] = []

    @staticmethod
    def _allowed() -> list[Any]:
        mixin: Any = vars(parameter)["UninitializedTensorMixin"]
        found: list[Any] = mixin._allowed_methods  # noqa: SLF001 - no public way
        return found

    def on(self) -> None:
        """Put the replaced functions on the list."""
        allowed = self._allowed()
        self._added = [torch.Tensor.to, torch.Tensor.cuda]
        allowed += self._added

    def off(self) -> None:
        """Take them off again."""
        allowed = self._allowed()
        allowed[:] = [method for method in allowed if not any(method is added for added in self._added)]
        self._added = []


def _timed(boundaries: Boundaries, kind: str, goes_to: Any, original: Any) -> Any:
    @functools.wraps(original)
    def copy(self: Any, *args: Any, **kwargs: Any) -> Any:
        # a batch is a plain tensor: parameters are not, nor are the fake ones that a compiler runs
        if type(self) is not torch.Tensor or self.device.type != "cpu" or not goes_to(kind, args, kwargs):
            return original(self, *args, **kwargs)
        if get_ident() != boundaries.owner or boundaries.in_forward or boundaries.in_backward:
            return original(self, *args, **kwargs)
        timer = boundaries.timer
        start_ns = monotonic_ns()
        mark = None if timer is None else timer.mark()
        result = original(self, *args, **kwargs)
        end_ns = monotonic_ns()
        pending = None if timer is None or mark is None else timer.pair(mark)
        boundaries.log.append((Undecided.COPY, start_ns, end_ns, pending))
        return result

    return copy


def _always(_kind: str, _args: Any, _kwargs: Any) -> bool:
    return True


def _goes_to(kind: str, args: Any, kwargs: Any) -> bool:
    """Whether the arguments of `Tensor.to` name a device of that kind."""
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(target, torch.Tensor | torch.device):
        return bool((target.device if isinstance(target, torch.Tensor) else target).type == kind)
    if isinstance(target, str):
        return target.split(":")[0] == kind
    return isinstance(target, int) and not isinstance(target, bool)
