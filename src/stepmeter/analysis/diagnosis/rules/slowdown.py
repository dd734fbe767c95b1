"""SLOWDOWN: steps take longer and longer.

*Fires* in windows of 200 steps or more, when the robust (Theil-Sen) slope of step time over the window, times its
length, is 15 % (warning) or 50 % (critical) of the median of the first third, and the median of the last third
confirms it.
*Why*: something grows: a list that is kept, a graph that is not freed, sequences, a cache, a hot device.
*Next*: look at the phase that grew most; compare memory at the same steps.

Source: Sen, "Estimates of the regression coefficient based on Kendall's tau", 1968.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import reaches, severity
from stepmeter.analysis.diagnosis.signals import WORDS, phase_of
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

MIN_STEPS = 200
WARN_GROWTH = 0.15
CRIT_GROWTH = 0.50
"""Growth over the window as a share of the early median."""

MAX_BLOCKS = 200
"""The slope goes through medians of so many blocks: all pairs of 10,000 steps would be 50 million."""

PARTS = ("input_wait_ms", "h2d_ms", "forward_ms", "backward_ms", "optimizer_ms", "residual_ms")


def check(window: StepTimeWindow) -> Outcome:
    """Judge whether step time drifts upwards."""
    step_time = window.metrics.get("step_time_ms")
    if step_time is None or len(window.steps) < MIN_STEPS:
        return None
    series = np.array(step_time.median_series_ms)
    early_ms, late_ms = _thirds(series)
    if early_ms <= 0:
        return None
    slope_ms = theil_sen(series)
    growth = slope_ms * (len(series) - 1) / early_ms
    level = severity(growth, WARN_GROWTH, CRIT_GROWTH, window)
    if level is None or not reaches(late_ms / early_ms - 1.0, WARN_GROWTH):
        return None
    metric, part_growth_ms = _grown_most(window)
    since = _since(window, series, early_ms)
    return Issue(
        kind="SLOWDOWN",
        status="SLOWDOWN",
        severity=level,
        summary=(
            f"Step time grows by {format_share(growth)} over {len(series)} steps, from {format_ms(early_ms)} to "
            f"{format_ms(late_ms)}, noticeably since step {since}; {WORDS[metric]} grew most, by "
            f"{format_ms(part_growth_ms)}."
        ),
        action=(
            f"Look at what grows in {WORDS[metric]}: lists or graphs that are kept, longer sequences, a cache; compare "
            "memory and device clocks of early and late steps."
        ),
        metric=metric,
        phase=phase_of(metric),
        score=growth / (1.0 + growth),
        evidence={
            "growth": growth,
            "slope_ms_per_step": slope_ms,
            "early_median_ms": early_ms,
            "late_median_ms": late_ms,
            "since_step": since,
            "phase_growth_ms": part_growth_ms,
        },
    )


def theil_sen(series: npt.NDArray[np.float64]) -> float:
    """Median slope over all pairs of block medians.

    Args:
        series: Values at equal distances, shape (n,), n of 2 or more.

    Returns:
        The slope in the series' unit per step.
    """
    blocks = np.array_split(series, min(MAX_BLOCKS, len(series)))
    values = np.array([float(np.median(block)) for block in blocks])
    edges = np.cumsum([0, *(len(block) for block in blocks)])
    centres = (edges[:-1] + edges[1:] - 1) / 2
    first, second = np.triu_indices(len(values), k=1)
    return float(np.median((values[second] - values[first]) / (centres[second] - centres[first])))


def _thirds(series: npt.NDArray[np.float64]) -> tuple[float, float]:
    third = len(series) // 3
    return float(np.median(series[:third])), float(np.median(series[-third:]))


def _grown_most(window: StepTimeWindow) -> tuple[str, float]:
    growth = {}
    for name in PARTS:
        if name in window.metrics:
            early_ms, late_ms = _thirds(np.array(window.metrics[name].median_series_ms))
            growth[name] = late_ms - early_ms
    if not growth:
        return "step_time_ms", 0.0
    metric = max(growth, key=lambda name: growth[name])
    return metric, growth[metric]


def _since(window: StepTimeWindow, series: npt.NDArray[np.float64], early_ms: float) -> int:
    """First step after which the medians of blocks stay above the warning's growth."""
    blocks = np.array_split(np.arange(len(series)), min(MAX_BLOCKS, len(series) // 5))
    above = [float(np.median(series[block])) >= early_ms * (1.0 + WARN_GROWTH) for block in blocks]
    last_below = max((number for number, is_above in enumerate(above) if not is_above), default=-1)
    return window.steps[int(blocks[min(last_below + 1, len(blocks) - 1)][0])]


RULE = Rule(
    ("SLOWDOWN",), check, __doc__, {"min_steps": MIN_STEPS, "warn_growth": WARN_GROWTH, "crit_growth": CRIT_GROWTH}
)
