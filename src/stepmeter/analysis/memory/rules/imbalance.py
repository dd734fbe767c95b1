"""IMBALANCE: one rank's steps need far more memory than those of the median rank.

*Fires*, from 50 steps on, when the worst rank's peak exceeds the median by 20 % with a peak of 30 % of the device's
memory or more (warning), or by 30 % with 50 % or more (critical). Where the device's memory is not known the rule
says nothing.
*Why*: the fullest rank limits the batch of all.
*Next*: compare what that rank holds: uneven stages or shards, longer sequences, work of rank 0.

Source: the thresholds of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_bytes, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.memory.facts import StepMemoryFacts

MIN_STEPS = 50
WARN_SKEW, WARN_PRESSURE = 0.20, 0.30
CRIT_SKEW, CRIT_PRESSURE = 0.30, 0.50


def check(facts: StepMemoryFacts) -> Outcome:
    """Judge the skew of both peaks; the larger one is reported."""
    if facts.n_steps < MIN_STEPS:
        return None
    found = [issue for kind in ("allocated", "reserved") if (issue := _judge(facts, kind)) is not None]
    return max(found, key=lambda issue: (issue.severity == "crit", issue.score), default=None)


def _judge(facts: StepMemoryFacts, kind: str) -> Issue | None:
    metric = f"peak_{kind}_bytes"
    values, worst = facts.values(metric), facts.worst(metric)
    if worst is None or len(values) < 2:
        return None
    rank, peak_bytes = worst
    median_bytes = statistics.median(values.values())
    pressure = facts.rows[rank].metrics.get(f"peak_{kind}_share")
    if pressure is None or median_bytes <= 0:
        return None
    skew = (peak_bytes - median_bytes) / median_bytes
    is_critical = reaches(skew, CRIT_SKEW) and reaches(pressure, CRIT_PRESSURE)
    if not is_critical and not (reaches(skew, WARN_SKEW) and reaches(pressure, WARN_PRESSURE)):
        return None
    return Issue(
        kind="IMBALANCE",
        status="MEMORY IMBALANCE",
        severity="crit" if is_critical else "warn",
        summary=(
            f"Rank {rank} {kind} {format_bytes(peak_bytes)} in a step, {format_share(skew)} more than the median rank "
            f"({format_bytes(median_bytes)})."
        ),
        action=f"Compare what rank {rank} holds with the others: stages, shards, sequence lengths, work of rank 0.",
        metric=metric,
        score=skew,
        skew=skew,
        ranks=(rank,),
        evidence={"rank": rank, "kind": kind, "pressure": pressure, "median_bytes": median_bytes},
    )


RULE = Rule(
    ("IMBALANCE",),
    check,
    __doc__,
    {
        "min_steps": MIN_STEPS,
        "warn_skew": WARN_SKEW,
        "warn_pressure": WARN_PRESSURE,
        "crit_skew": CRIT_SKEW,
        "crit_pressure": CRIT_PRESSURE,
    },
)
