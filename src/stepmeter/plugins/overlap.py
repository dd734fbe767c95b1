"""How much of its time a span had a device to itself, among the spans that are measured on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Window:
    """An open span.

    Attributes:
        around: The window of the nearest span around it that is measured as well, or None.
        since_ns: Up to when `shared_ns` is counted.
        inside: Open windows directly inside it.
        own_ns: Its time, each moment divided by how many shared it.
        begun_ns: When it began.
    """

    around: Window | None
    begun_ns: int
    since_ns: int
    inside: int = 0
    own_ns: float = 0.0


class Overlaps:
    """The open windows of one device; to be used under one lock.

    Windows that lie in one another do not share: the inner is part of the outer. Those side by side do, evenly.
    """

    def __init__(self) -> None:
        self._open: dict[int, Window] = {}
        self._outermost = 0

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, key: int, around: list[int], at_ns: int) -> None:
        """Open a window.

        Args:
            key: Its span.
            around: The spans around it, innermost first.
            at_ns: Now.
        """
        self._advance(at_ns)
        outer = next((found for each in around if (found := self._open.get(each)) is not None), None)
        self._open[key] = Window(outer, at_ns, at_ns)
        self._count(outer, 1)

    def end(self, key: int, at_ns: int) -> float:
        """Close a window.

        Args:
            key: Its span.
            at_ns: Now.

        Returns:
            Its share of its own time, 1 for a span that nothing overlapped.
        """
        self._advance(at_ns)
        window = self._open.pop(key)
        self._count(window.around, -1)
        for each in self._open.values():
            if each.around is window:  # it outlives the span around it
                each.around = window.around
                self._count(window.around, 1)
        lasted_ns = at_ns - window.begun_ns
        return window.own_ns / lasted_ns if lasted_ns else 1.0

    def clear(self) -> None:
        """Forget all windows."""
        self._open.clear()
        self._outermost = 0

    def _count(self, outer: Window | None, by: int) -> None:
        if outer is None:
            self._outermost += by
        else:
            outer.inside += by

    def _advance(self, at_ns: int) -> None:
        for each in self._open.values():
            each.own_ns += (at_ns - each.since_ns) * self._weight(each)
            each.since_ns = at_ns

    def _weight(self, window: Window) -> float:
        weight, each = 1.0, window
        while each.around is not None:
            weight /= max(each.around.inside, 1)
            each = each.around
        return weight / max(self._outermost, 1)
