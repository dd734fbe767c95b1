"""SLOW_RANK: ranks that do not wait for one another, and one of them takes longer.

*Fires* when no straggler explains the ranks and the longest mean step exceeds that of the median rank by 10 %
(warning) or 20 % (critical) of itself. In synchronised training all steps take equally long, so this is about
free-running ranks.
*Why*: whoever waits for this rank in the end waits for the sum of these excesses.
*Next*: look at the named phase on the named rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.attribution import attribute
from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import severity
from stepmeter.analysis.diagnosis.signals import WORDS, phase_of
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Severity
    from stepmeter.analysis.step_time.model import StepTimeMetric, StepTimeWindow

WARN_EXCESS = 0.10
CRIT_EXCESS = 0.20
"""Excess over the median rank as a share of the slow rank's step."""

PARTS = ("input_wait_ms", "h2d_ms", "forward_ms", "backward_ms", "optimizer_ms", "residual_ms")


def check(window: StepTimeWindow) -> Outcome:
    """Judge whether a free-running rank takes longer than the others."""
    step_time = window.metrics.get("step_time_ms")
    if step_time is None or len(step_time.ranks) < 2 or step_time.worst_ms <= 0:
        return None
    attribution = attribute(window)
    if attribution is not None and attribution.names_a_straggler:
        return None
    excess_ms = step_time.worst_ms - step_time.representative_ms
    level = severity(excess_ms / step_time.worst_ms, WARN_EXCESS, CRIT_EXCESS, window)
    return None if level is None else _finding(window, step_time, excess_ms, level)


def _finding(window: StepTimeWindow, step_time: StepTimeMetric, excess_ms: float, level: Severity) -> Issue:
    slow, median = step_time.worst_rank, step_time.representative_rank
    excesses = _excesses(window, slow, median)
    metric = max(excesses, key=lambda name: excesses[name], default="step_time_ms")
    score = excess_ms / step_time.worst_ms
    return Issue(
        kind="SLOW_RANK",
        status="SLOW RANK",
        severity=level,
        summary=(
            f"Rank {slow} takes {format_ms(step_time.worst_ms)} a step, {format_share(score)} of it beyond rank "
            f"{median} ({format_ms(step_time.representative_ms)}); the largest difference is {WORDS[metric]} with "
            f"{format_ms(excesses.get(metric, excess_ms))}."
        ),
        action=f"Look at {WORDS[metric]} on rank {slow}: uneven work, a throttled or shared device, a busy host.",
        metric=metric,
        phase=phase_of(metric),
        score=score,
        skew=step_time.skew,
        ranks=(slow,),
        evidence={
            "slow_rank": slow,
            "median_rank": median,
            "step_time_ms": step_time.worst_ms,
            "median_rank_step_time_ms": step_time.representative_ms,
            "excess_ms": excess_ms,
            "component_excesses_ms": excesses,
        },
    )


def _excesses(window: StepTimeWindow, slow: int, median: int) -> dict[str, float]:
    mine, theirs = window.facts(slow).average, window.facts(median).average
    pairs = {name: (mine.get(name), theirs.get(name)) for name in PARTS}
    return {name: a - b for name, (a, b) in pairs.items() if a is not None and b is not None}


RULE = Rule(("SLOW_RANK",), check, __doc__, {"warn_excess": WARN_EXCESS, "crit_excess": CRIT_EXCESS})
