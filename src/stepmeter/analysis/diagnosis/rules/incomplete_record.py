"""INCOMPLETE_RECORD: steps were lost on their way into the store, so the other findings rest on a part of the run.

*Fires* when gaps in the numbering of steps, or steps that the program itself reported as dropped, exceed 1 % of
all steps (warning) or reach 10 % (critical). Gaps count from 100 steps on: below that a single missing step would
exceed 1 %.
*Why*: steps came faster than they could be sent, or the collector was away.
*Next*: see which kind was dropped; a full queue wants a faster or nearer collector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import severity
from stepmeter.units import format_share

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeCoverage, StepTimeWindow

WARN_LOST = 0.01
CRIT_LOST = 0.10
MIN_STEPS_FOR_GAPS = 100

STEP_KINDS = ("step", "timing")
"""Beginnings of the drop kinds that are lost steps; memory snapshots or metric points are none."""


def check(window: StepTimeWindow) -> Issue | None:
    """Judge how much of the run is missing."""
    coverage = window.coverage
    lost = max(missing_steps(coverage), dropped_steps(coverage))
    share = lost / (coverage.recorded_steps + lost) if lost else 0.0
    level = severity(share, WARN_LOST, CRIT_LOST, window) if share > WARN_LOST else None
    if level is None:
        return None
    return Issue(
        kind="INCOMPLETE_RECORD",
        status="INCOMPLETE RECORD",
        severity=level,
        summary=(
            f"{lost} of {coverage.recorded_steps + lost} steps ({format_share(share)}) never reached the store; all "
            "other findings rest on the remaining ones."
        ),
        action="See `dropped` in the evidence: a full queue wants a faster collector, an outage a steadier one.",
        score=share,
        ranks=tuple(coverage.missing_steps),
        evidence={
            "lost_steps": lost,
            "recorded_steps": coverage.recorded_steps,
            "missing_steps": {str(rank): count for rank, count in coverage.missing_steps.items()},
            "dropped": dict(coverage.dropped),
        },
    )


def missing_steps(coverage: StepTimeCoverage) -> int:
    """Gaps in the numbering, when there are steps enough for a share of them to mean something."""
    missing = sum(coverage.missing_steps.values())
    return missing if coverage.recorded_steps + missing >= MIN_STEPS_FOR_GAPS else 0


def dropped_steps(coverage: StepTimeCoverage) -> int:
    """Steps that the producers reported as lost."""
    return sum(count for kind, count in coverage.dropped.items() if kind.startswith(STEP_KINDS))


RULE = Rule(
    ("INCOMPLETE_RECORD",),
    check,
    __doc__,
    {"warn_lost": WARN_LOST, "crit_lost": CRIT_LOST, "min_steps_for_gaps": MIN_STEPS_FOR_GAPS},
)
