"""Components that few steps pay, and those dearly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stepmeter.analysis.diagnosis.model import Issue
from stepmeter.analysis.diagnosis.policy import reaches, severity
from stepmeter.analysis.diagnosis.signals import WORDS, phase_of, skew
from stepmeter.analysis.diagnosis.typical import WARN_SHARE, typical_severity
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeRankFacts, StepTimeWindow

WARN_STALLED = 0.10
CRIT_STALLED = 0.30
"""Stalled time over all time."""

MIN_DEVIATIONS = 5.0
MIN_STEP_SHARE = 0.5
"""A stall exceeds the component's median by more than the larger of so many median absolute deviations and this share
of the median step."""

THRESHOLDS = {
    "warn_stalled_share": WARN_STALLED,
    "crit_stalled_share": CRIT_STALLED,
    "min_deviations": MIN_DEVIATIONS,
    "min_step_share": MIN_STEP_SHARE,
}
"""What the rules on stalls judge by."""

WORST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Stalls:
    """The stalls of one rank.

    Attributes:
        global_rank: The rank.
        share: Time beyond the component's median in stalled steps, over all time.
        total_ms: That time.
        count: Number of stalled steps.
        worst: The longest, as step and component in ms, longest first.
    """

    global_rank: int
    share: float
    total_ms: float
    count: int
    worst: tuple[tuple[int, float], ...]


def find_stalls(window: StepTimeWindow, metric: str) -> Stalls | None:
    """Find the rank that lost most to stalls of a component.

    Only ranks count whose mean share is material and whose median step does not show it.

    Args:
        window: The analyzed window.
        metric: The component.

    Returns:
        None when no rank has a stall.
    """
    found = [
        _stalls_of(window, facts, metric)
        for facts in window.rank_facts
        if reaches(facts.shares.get(metric, 0.0), WARN_SHARE)
        and not reaches(facts.typical_shares.get(metric, 0.0), WARN_SHARE)
    ]
    with_stalls = [stalls for stalls in found if stalls.count]
    return max(with_stalls, key=lambda stalls: (stalls.share, -stalls.global_rank), default=None)


def _stalls_of(window: StepTimeWindow, facts: StepTimeRankFacts, metric: str) -> Stalls:
    component = np.array(facts.series[metric])
    step_time = np.array(facts.series["step_time_ms"])
    median = float(np.median(component))
    deviation = float(np.median(np.abs(component - median)))
    threshold = max(MIN_DEVIATIONS * deviation, MIN_STEP_SHARE * float(np.median(step_time)))
    stalled = np.flatnonzero(component - median > threshold)
    longest = sorted(stalled, key=lambda index: (-component[index], index))[:WORST_SHOWN]
    total_ms = float((component[stalled] - median).sum())
    return Stalls(
        global_rank=facts.global_rank,
        share=total_ms / float(step_time.sum()),
        total_ms=total_ms,
        count=len(stalled),
        worst=tuple((window.steps[index], float(component[index])) for index in longest),
    )


def stalls_issue(window: StepTimeWindow, metric: str, kind: str, action: str) -> Issue | None:
    """Judge the stalls of a component.

    Args:
        window: The analyzed window.
        metric: The component.
        kind: Kind of the finding.
        action: What to try first.

    Returns:
        None when a typical finding covers the component, or stalls are few.
    """
    if typical_severity(window, metric) is not None:
        return None
    stalls = find_stalls(window, metric)
    level = None if stalls is None else severity(stalls.share, WARN_STALLED, CRIT_STALLED, window)
    if stalls is None or level is None:
        return None
    step, longest_ms = stalls.worst[0]
    return Issue(
        kind=kind,
        status=kind.replace("_", " "),
        severity=level,
        summary=(
            f"{stalls.count} of {len(window.steps)} steps stalled in {WORDS[metric]} and took "
            f"{format_share(stalls.share)} of all time; the longest is step {step} with {format_ms(longest_ms)}. "
            f"The typical step spends {format_share(window.shares[metric].typical)} there."
        ),
        action=action,
        metric=metric,
        phase=phase_of(metric),
        score=stalls.share,
        share=window.shares[metric].mean,
        skew=skew(window, metric),
        ranks=(stalls.global_rank,) if len(window.ranks) > 1 else (),
        evidence={
            "stalled_steps": stalls.count,
            "stalled_ms": stalls.total_ms,
            "typical_share": window.shares[metric].typical,
            "worst_steps": [{"step": number, "duration_ms": duration_ms} for number, duration_ms in stalls.worst],
        },
    )
