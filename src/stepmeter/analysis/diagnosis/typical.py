"""Components that every step pays, as against those that few steps pay (`stalls`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue
from stepmeter.analysis.diagnosis.policy import severity
from stepmeter.analysis.diagnosis.signals import WORDS, clock_words, phase_of, worst_rank
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Severity
    from stepmeter.analysis.step_time.model import StepTimeWindow

WARN_SHARE = 0.10
CRIT_SHARE = 0.20
"""Share of step time from which an overhead matters; the median over ranks.

Source: the thresholds of traceml-ai 0.5.0, so that findings can be compared.
"""

VERBS = {"h2d_ms": "are"}


def typical_severity(window: StepTimeWindow, metric: str) -> Severity | None:
    """Judge a component's share, which must be reached by the mean and in the median step.

    Args:
        window: The analyzed window.
        metric: The component.

    Returns:
        None when the share is small, unknown, or comes from few long steps.
    """
    share = window.shares.get(metric)
    if share is None:
        return None
    return severity(min(share.mean, share.typical), WARN_SHARE, CRIT_SHARE, window)


def typical_issue(window: StepTimeWindow, metric: str, kind: str, action: str, rank_by: str) -> Issue | None:
    """Judge a component and make the finding.

    Args:
        window: The analyzed window.
        metric: The component.
        kind: Kind of the finding.
        action: What to try first.
        rank_by: Metric whose worst rank is named.

    Returns:
        None when the component is no typical overhead.
    """
    level = typical_severity(window, metric)
    if level is None:
        return None
    share, found = window.shares[metric], window.metrics[metric]
    whole_ms = window.metrics["step_time_ms"].median_ms
    words = WORDS[metric]
    return Issue(
        kind=kind,
        status=kind.replace("_", "-"),
        severity=level,
        summary=(
            f"{words[0].upper()}{words[1:]} {VERBS.get(metric, 'is')} {format_share(share.mean)} of the typical "
            f"{clock_words(window)} step time: {format_ms(found.median_ms)} of {format_ms(whole_ms)}."
        ),
        action=action,
        metric=metric,
        phase=phase_of(metric),
        score=share.mean,
        share=share.mean,
        skew=found.skew,
        ranks=worst_rank(window, rank_by),
        evidence={
            "typical_share": share.typical,
            "share_low": share.low,
            "share_high": share.high,
            "median_ms": found.median_ms,
            "worst_ms": found.worst_ms,
            "worst_rank": found.worst_rank,
        },
    )
