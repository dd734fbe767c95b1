"""What rules look back on: the rows of the window, and the points of each metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepmeter.alerts.functions import Point
from stepmeter.conventions.rows import Row, number


class Memory:
    """The newest rows; one writer and readers on its thread, or under the engine's lock.

    Args:
        capacity: Rows, and points of each metric, that are kept.
        start_s: When the run began, Unix time in s.

    Attributes:
        step: Step of the newest row.
        now_s: The moment of evaluation, Unix time in s.
        last_row_s: When the newest row was committed; the start before the first.
        start_s: When the run began.
    """

    def __init__(self, capacity: int, start_s: float) -> None:
        self._capacity = capacity
        self._points: dict[str, list[Point]] = {}
        self._values: dict[str, list[float]] = {}
        self._names: set[str] = set()
        self._rows: list[tuple[int, float, Mapping[str, Any]]] = []
        self._began: dict[str, float] = {}
        self.step = 0
        self.start_s = self.now_s = self.last_row_s = start_s

    def add(self, row: Row) -> None:
        """Take a committed row.

        Args:
            row: The row.
        """
        at_s = row.time_ns / 1e9
        self.step, self.now_s, self.last_row_s = row.step, max(self.now_s, at_s), at_s
        values = row.values if row.added is None else row.added
        self._keep(self._rows, (row.step, at_s, values))
        self._names.update(values)
        for name, logged in values.items():
            value = number(logged)
            if value is not None:
                points = self._points.get(name)
                if points is None:
                    points, self._values[name] = [], []
                    self._points[name] = points
                    self._began[name] = at_s
                self._keep(points, (row.step, at_s, float(value)))
                self._keep(self._values[name], float(value))

    def points(self, name: str) -> Sequence[Point]:
        """The points of a metric.

        Args:
            name: As it stands in a rule; where there is no such metric, dots count as slashes.

        Returns:
            Oldest first; empty when it was never logged as a number.
        """
        return self._points.get(name) or self._points.get(name.replace(".", "/")) or ()

    def values(self, name: str) -> Sequence[float]:
        """The values of the same points, since most formulas need no more."""
        return self._values.get(name) or self._values.get(name.replace(".", "/")) or ()

    def began_s(self, name: str) -> float:
        """When a metric was first logged; the moment of evaluation when it never was."""
        return self._began.get(name, self._began.get(name.replace(".", "/"), self.now_s))

    def has(self, name: str) -> bool:
        """Whether a metric was ever logged, as a number or not."""
        return name in self._names or name.replace(".", "/") in self._names

    @property
    def names(self) -> frozenset[str]:
        """Names of everything that was ever logged."""
        return frozenset(self._names)

    def rows(self) -> Sequence[tuple[int, float, Mapping[str, Any]]]:
        """The rows: (step, Unix time in s, values), oldest first."""
        return self._rows

    def _keep(self, items: list[Any], item: Any) -> None:
        items.append(item)
        if len(items) > 2 * self._capacity:  # cut in halves, so that a cut costs next to nothing a row
            del items[: -self._capacity]


class RowMemory(Memory):
    """A memory of one row, for expressions inside a window.

    Attributes:
        row: The row's numbers by name.
    """

    def __init__(self) -> None:
        super().__init__(1, 0.0)
        self.row: Mapping[str, Any] = {}

    def points(self, name: str) -> Sequence[Point]:
        """The one point of a metric."""
        return ((0, 0.0, self.row[name]),)

    def values(self, name: str) -> Sequence[float]:
        """Its value."""
        return (self.row[name],)
