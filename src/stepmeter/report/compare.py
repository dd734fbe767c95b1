"""Two summaries side by side: is the second one faster, slower, the same, or no fair comparison?

A change of step time counts when it is at least 3 % and beyond the noise of the steps: the margin of a change comes
from the 95 % intervals of both sides, which the summary holds. Where a file has none (it is older), 3 % alone decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Json = dict[str, Any]
Verdict = Literal["IMPROVEMENT", "REGRESSION", "SIMILAR", "NOT COMPARABLE"]

MATERIAL_TIME_CHANGE = 0.03
MATERIAL_MEMORY_CHANGE = 0.10
"""Relative changes from which a verdict is given.

Source: the thresholds of traceml-ai 0.5.0, so that verdicts can be compared.
"""

MATERIAL_ENERGY_CHANGE = 0.05
"""The same for energy per step: boards of one kind differ by so much, also when they do the same.

Source: Yang, Adamek and Armour, SC'24: about 5 % gain error from board to board.
"""

MIN_STEPS = 2
SECTIONS: Final = ("step_time", "step_memory", "system", "process", "energy")
STEP_TIME: Final = "step_time_ms"
MEMORY_METRICS: Final = ("peak_reserved_bytes", "peak_allocated_bytes")
ENERGY_METRICS: Final = ("step_energy_mj", "step_cpu_energy_mj")


@dataclass(frozen=True, slots=True)
class Change:
    """One metric in both summaries.

    Attributes:
        section: Its section.
        metric: Its name, which ends with its unit.
        unit: Its unit in UCUM.
        before: Its value in A, the median over ranks or nodes, for step time that of the slowest rank; None when it
            was not measured there.
        after: The same in B.
        margin: Half of the 95 % interval of `relative`; None where it is not known.
    """

    section: str
    metric: str
    unit: str
    before: float | None
    after: float | None
    margin: float | None = None

    @property
    def relative(self) -> float | None:
        """(B - A) / A; None where one is missing, or A alone is 0."""
        if self.before is None or self.after is None:
            return None
        if self.before == 0:
            return 0.0 if self.after == 0 else None
        return (self.after - self.before) / abs(self.before)

    @property
    def is_noise(self) -> bool:
        """Whether the change is within its margin."""
        return self.relative is not None and self.margin is not None and abs(self.relative) <= self.margin


@dataclass(frozen=True, slots=True)
class Side:
    """What a summary says of itself.

    Attributes:
        name: The run as a person knows it.
        world_size: Number of ranks.
        clock: Clock of its step times; None without steps.
        steps: How many steps were analyzed.
        findings: Kind of the first finding of each section.
    """

    name: str
    world_size: int
    clock: str | None
    steps: int
    findings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two summaries compared.

    Attributes:
        verdict: What came out.
        why: The reason, with numbers where there are any.
        before: A.
        after: B.
        changes: Every metric that either measured, and the shares of step time as metrics `<component>_share`.
    """

    verdict: Verdict
    why: tuple[str, ...]
    before: Side
    after: Side
    changes: tuple[Change, ...]

    def change(self, metric: str) -> Change | None:
        """The change of a metric, given with or without its unit; None when there is none of that name."""
        return next((item for item in self.changes if metric in {item.metric, item.metric.rsplit("_", 1)[0]}), None)


def compare(a: Json, b: Json) -> Comparison:
    """Compare two summaries.

    Args:
        a: The document of the run before.
        b: The document of the run after.

    Returns:
        Verdict, reasons and changes. Step times on different clocks are compared on the CPU clock, which both have.
    """
    before, after = _side(a), _side(b)
    changes = tuple(_changes(a, b, before, after))
    obstacle = _obstacle(before, after, changes)
    if obstacle is not None:
        return Comparison("NOT COMPARABLE", (obstacle,), before, after, changes)
    verdict, why = _judge(changes)
    return Comparison(verdict, why, before, after, changes)


def _side(document: Json) -> Side:
    meta, window = document["meta"], document["step_time"]["global"]["window"]
    return Side(
        name=meta.get("run_name") or meta["run_id"],
        world_size=meta["world_size"],
        clock=window["clock"],
        steps=window["steps_analyzed"],
        findings={name: document[name]["diagnosis"]["kind"] for name in SECTIONS},
    )


def _obstacle(before: Side, after: Side, changes: tuple[Change, ...]) -> str | None:
    for letter, side in (("A", before), ("B", after)):
        if side.steps < MIN_STEPS:
            return f"{letter} ({side.name}) has {side.steps} analyzed steps; a comparison needs {MIN_STEPS}."
    if before.world_size != after.world_size:
        return (
            f"A has {before.world_size} ranks and B {after.world_size}: their steps are not the same work, so neither "
            "their times nor their memory compare."
        )
    step_time = _of(changes, STEP_TIME)
    if step_time is None or step_time.relative is None:
        letter = "A" if step_time is None or step_time.before is None else "B"
        return f"Step time was not measured in {letter}; its finding says which signal is missing."
    return None


def _changes(a: Json, b: Json, before: Side, after: Side) -> list[Change]:
    changes = []
    for section in SECTIONS:
        for metric in dict.fromkeys((*_names(a, section), *_names(b, section))):
            unit = a[section]["units"].get(metric) or b[section]["units"][metric]
            read = _on_cpu_clock(metric) if section == "step_time" and before.clock != after.clock else metric
            if read is not None:
                values = _value(a, section, read), _value(b, section, read)
                margin = _margin(_interval(a, section, read), _interval(b, section, read), values)
                changes.append(Change(section, metric, unit, *values, margin))
    if before.clock == after.clock:
        changes += _shares(a, b)
    return [change for change in changes if change.before is not None or change.after is not None]


def _on_cpu_clock(metric: str) -> str | None:
    """What stands for a metric where the selected clocks differ; None where nothing does."""
    explicit = {STEP_TIME: "step_time_cpu_ms", "traced_step_time_ms": "traced_step_time_cpu_ms"}
    return explicit.get(metric, metric if "_cpu_" in metric else None)


def _names(document: Json, section: str) -> list[str]:
    return list(document[section]["metadata"]["section_metric_names"])


def _value(document: Json, section: str, metric: str) -> float | None:
    """Median over ranks or nodes, but step time of the slowest rank: a run is not over before that one is."""
    statistic = "worst" if metric in {STEP_TIME, "step_time_cpu_ms"} else "median"
    value: float | None = document[section]["global"][statistic].get(metric, {}).get("value")
    return value


def _interval(document: Json, section: str, metric: str) -> tuple[float, float] | None:
    found = document[section]["global"].get("interval", {}).get(metric) or {}
    low, high = found.get("low"), found.get("high")
    return None if low is None or high is None else (low, high)


def _margin(
    before: tuple[float, float] | None, after: tuple[float, float] | None, values: tuple[float | None, float | None]
) -> float | None:
    """Half width of the quotient's interval; relative errors of independent runs add in squares."""
    a, b = values
    if before is None or after is None or not a or not b:
        return None
    half_a, half_b = (before[1] - before[0]) / 2 / abs(a), (after[1] - after[0]) / 2 / abs(b)
    return abs(b / a) * math.hypot(half_a, half_b)


def _shares(a: Json, b: Json) -> list[Change]:
    pairs = (a["step_time"]["global"].get("share", {}), b["step_time"]["global"].get("share", {}))
    changes = []
    for metric in dict.fromkeys((*pairs[0], *pairs[1])):
        mean_a, mean_b = (side.get(metric, {}).get("mean") for side in pairs)
        changes.append(Change("step_time", f"{metric.removesuffix('_ms')}_share", "1", mean_a, mean_b))
    return changes


def _of(changes: tuple[Change, ...], metric: str) -> Change | None:
    return next((change for change in changes if change.metric == metric), None)


def _judge(changes: tuple[Change, ...]) -> tuple[Verdict, tuple[str, ...]]:
    step_time, memory, energy = (
        _of(changes, STEP_TIME),
        *(_known(changes, of) for of in (MEMORY_METRICS, ENERGY_METRICS)),
    )
    if step_time is None or step_time.relative is None:
        raise ValueError("changes without a step time are no comparison")
    why = [_sentence("Step time", step_time, MATERIAL_TIME_CHANGE)]
    verdict = _direction(step_time, MATERIAL_TIME_CHANGE)
    if memory is not None:
        of_memory = _direction(memory, MATERIAL_MEMORY_CHANGE)
        if of_memory != "SIMILAR":
            why.append(_sentence("Peak memory", memory, MATERIAL_MEMORY_CHANGE))
        if verdict == "SIMILAR":
            verdict = of_memory
    if energy is not None:
        why.append(_sentence("Energy per step", energy, MATERIAL_ENERGY_CHANGE))
        if verdict == "SIMILAR":
            verdict = _direction(energy, MATERIAL_ENERGY_CHANGE)
    return verdict, tuple(why)


def _known(changes: tuple[Change, ...], metrics: tuple[str, ...]) -> Change | None:
    """The first of several metrics that both measured."""
    known = (_of(changes, metric) for metric in metrics)
    return next((change for change in known if change is not None and change.relative is not None), None)


def _direction(change: Change, material: float) -> Verdict:
    relative = change.relative or 0.0
    if abs(relative) < material or change.is_noise:
        return "SIMILAR"
    return "REGRESSION" if relative > 0 else "IMPROVEMENT"


def _sentence(subject: str, change: Change, material: float) -> str:
    from stepmeter.units import format_quantity, format_share

    relative = change.relative or 0.0
    values = f"from {format_quantity(change.before, change.unit)} to {format_quantity(change.after, change.unit)}"
    sentence = f"{subject} changed by {relative:+.1%} ({values})".replace("%", " %")
    if abs(relative) < material:
        return f"{sentence}, less than the {format_share(material)} that count."
    if change.is_noise:
        return f"{sentence}, within the noise of the steps (±{format_share(change.margin)})."
    beyond = f", beyond the noise of the steps (±{format_share(change.margin)})" if change.margin is not None else ""
    return f"{sentence}{beyond}."
