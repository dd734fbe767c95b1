"""What the sections on step memory, system and process are made of: rows of metrics, and findings about them.

Metrics are in the unit that their name ends with: `_bytes`, `_share` (0 to 1), `_c`, `_w`,
`_cores`, `_mj`. An absent
metric was never measured; 0.0 was measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from stepmeter.analysis.diagnosis.engine import order
from stepmeter.analysis.diagnosis.model import Diagnosis, Issue, Rule

_UNITS = {"share": "1", "bytes": "By", "c": "Cel", "w": "W", "cores": "{core}", "ms": "ms", "mj": "mJ"}


@dataclass(frozen=True, slots=True)
class SectionMetric:
    """One metric of a section.

    Attributes:
        name: Its name, which ends with its unit.
        worst: Which end of its range is the bad one.
    """

    name: str
    worst: Literal["max", "min"] = "max"

    @property
    def unit(self) -> str:
        """The unit that its name ends with."""
        return _UNITS[self.name.rsplit("_", 1)[1]]


@dataclass(frozen=True, slots=True)
class SectionRow:
    """One rank or node.

    Attributes:
        metrics: Value of each metric that was measured.
        host: Name of the host; None when not known.
        node_rank: Rank of the node; None when not known.
        devices: Which device shows the value, by metric, for metrics of the worst of several.
        intervals: Low and high end of the 95 % interval of a metric that is a statistic of many steps.
    """

    metrics: Mapping[str, float]
    host: str | None = None
    node_rank: int | None = None
    devices: Mapping[str, str] = field(default_factory=dict)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SectionFacts:
    """The facts of one section.

    Attributes:
        name: `system`, `process` or `step_memory`.
        index_by: What rows are numbered by: `node_rank` or `global_rank`.
        metrics: All metrics of the section, measured or not.
        rows: What was measured, by number.
        samples: How many readings the rows sum up.
        has_gpu: Whether any rank or reading has a GPU.
        duration_s: Time from the first reading to the last; None without readings.
        steps: First and last step that the readings are of; None where they are not of steps.
        n_steps: How many steps that are.
    """

    name: str
    index_by: str
    metrics: tuple[SectionMetric, ...]
    rows: Mapping[int, SectionRow] = field(default_factory=dict)
    samples: int = 0
    has_gpu: bool = False
    duration_s: float | None = None
    steps: tuple[int, int] | None = None
    n_steps: int = 0

    def values(self, metric: str) -> dict[int, float]:
        """A metric's values, by number, of the rows that measured it."""
        return {index: row.metrics[metric] for index, row in self.rows.items() if metric in row.metrics}

    def worst(self, metric: str) -> tuple[int, float] | None:
        """The row that is worst in a metric, the lower number on a tie; None when no row measured it."""
        values = self.values(metric)
        if not values:
            return None
        sign = -1.0 if next(item.worst for item in self.metrics if item.name == metric) == "max" else 1.0
        index = min(values, key=lambda number: (sign * values[number], number))
        return index, values[index]

    def representative(self, metric: str) -> tuple[int, float] | None:
        """The real row nearest the median, then of lower value, then of lower number; None when no row measured it."""
        values = self.values(metric)
        if not values:
            return None
        median = statistics.median(values.values())
        index = min(values, key=lambda number: (abs(values[number] - median), values[number], number))
        return index, values[index]

    def interval(self, metric: str) -> tuple[float, float] | None:
        """The interval of the representative row; None where it has none."""
        found = self.representative(metric)
        return None if found is None else self.rows[found[0]].intervals.get(metric)

    def average(self, metric: str) -> float | None:
        """Mean over the rows that measured a metric."""
        values = self.values(metric)
        return statistics.fmean(values.values()) if values else None


@dataclass(frozen=True, slots=True)
class SectionAnalysis:
    """A section's facts and what was found in them."""

    facts: SectionFacts
    diagnosis: Diagnosis


Facts = TypeVar("Facts")


def judge(facts: Facts, rules: Sequence[Rule[Facts]], conclude: Callable[[Facts], Issue]) -> Diagnosis:
    """Run rules over a section's facts.

    Args:
        facts: The facts.
        rules: The rules, in the order that decides between findings of equal severity and score.
        conclude: Makes the finding when no rule has one.

    Returns:
        At least one finding, the primary one first.
    """
    issues = [outcome for rule in rules if isinstance(outcome := rule.check(facts), Issue)]
    return Diagnosis(order(issues) if issues else (conclude(facts),))
