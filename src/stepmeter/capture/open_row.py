"""One row: while it takes values, and once it is committed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from stepmeter.capture.aggregation import Weighted, combine
from stepmeter.conventions.rows import Row, number

_TIME: Final = "time_ms/"
_COUNT: Final = "count/"


@dataclass(slots=True)
class OpenRow:
    """A row that still takes values.

    Attributes:
        step: Its step.
        explicit: Whether the program named the step.
        values: What was logged, and what plugins measured.
        spans: Total in ns and number of spans by path.
        weights: State of the weighted means among the values.
        before: Values of the row as it was committed before.
    """

    step: int
    explicit: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    spans: dict[str, list[int]] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)

    def log(self, values: Mapping[str, Any]) -> None:
        """Set values; the last one wins, and what spans had added up under its name starts anew."""
        self.values.update(values)
        for key in values:
            self.weights.pop(key, None)
            if key.startswith(_TIME):
                self.spans.pop(key[len(_TIME) :], None)

    def measured(self, path: str, metrics: Mapping[str, Any], duration_ns: int) -> None:
        """Combine what plugins measured on a span with what they measured before."""
        for name, value in metrics.items():
            key = f"{name}/{path}"
            if key not in self.values:
                self.weights.pop(key, None)
            weighted = Weighted(self.values.get(key), self.weights.get(key, 0.0))
            self.values[key], self.weights[key] = combine(name, weighted, value, duration_ns / 1e6)

    def snapshot(self, *, count: bool) -> dict[str, Any]:
        """Its values as they would be committed now."""
        values = dict(self.values)
        for path, (total_ns, spans) in self.spans.items():
            logged = number(values.get(_TIME + path))
            values[_TIME + path] = total_ns / 1e6 + (logged or 0)
            if count:
                values[_COUNT + path] = spans + (number(values.get(_COUNT + path)) or 0)
        return values


def merged(rows: list[Row]) -> list[Row]:
    """Put the rows of each step together; later values win.

    Args:
        rows: In the order of their commits.

    Returns:
        One row a step, in the order of the steps.
    """
    by_step: dict[int, Row] = {}
    for row in rows:
        before = by_step.get(row.step)
        if before is None:
            by_step[row.step] = row
        else:
            by_step[row.step] = Row(row.step, before.time_ns, {**before.values, **row.values})
    return [by_step[step] for step in sorted(by_step)]
