"""What holds for every rule: when a window says anything, and how severe a score may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import SEVERITIES, Severity

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

MIN_STEPS = 2
"""Fewer steps are WARMUP."""

MIN_STEPS_FOR_CRIT = 20
"""Fewer steps never give more than a warning."""

ROUNDING = 1e-9
"""A threshold is reached in spite of the last bits of a quotient: 0.1 + 0.1 of 1 is 20 %."""


def reaches(value: float, threshold: float) -> bool:
    """Whether a value is at or above a threshold, but for rounding."""
    return value >= threshold - ROUNDING


def severity(score: float, warn_from: float, crit_from: float, window: StepTimeWindow) -> Severity | None:
    """Judge a score.

    Args:
        score: The score.
        warn_from: From here it is a warning.
        crit_from: From here it is critical, given enough steps.
        window: The window that the score is of.

    Returns:
        None below `warn_from`; at most a warning under FSDP, whose ranks also wait for one another in forward, so
        that causes are less certain, and in a window of fewer than `MIN_STEPS_FOR_CRIT` steps.
    """
    if not reaches(score, warn_from):
        return None
    return cap("crit" if reaches(score, crit_from) else "warn", window)


def cap(wanted: Severity, window: StepTimeWindow) -> Severity:
    """The severity that a window allows at most."""
    allowed: Severity = "warn" if window.is_fsdp or len(window.steps) < MIN_STEPS_FOR_CRIT else "crit"
    return min(wanted, allowed, key=SEVERITIES.index)
