"""CREEP_EARLY, CREEP_CONFIRMED: peak memory rises and rises.

*Fires*, as information or (confirmed) as a warning, in windows of 800 steps or more. The window's first 100 steps
are the baseline, the 100 about its middle and its last 100 are compared with it. All of these must hold, for what
tensors held or what the allocator reserved: baseline < middle < recent on the worst rank and on the median one;
growth of 512 MiB (1 GiB: confirmed) on the worst rank; growth of 6 % on the worst and 4 % on the median rank; a
robust slope over the last 400 steps of 1.5 % and 1.0 % in 100 steps; and the recent level no more than 2 % below
the highest one.
*Why*: tensors are kept: losses that are summed with their graph, lists of outputs, caches that only grow.
*Next*: keep `loss.item()` rather than `loss`; compare torch.cuda.memory_snapshot() of an early and a late step.

Source: the thresholds of the heuristic that traceml-ai 0.5.0 contains without using it; slope by Theil and Sen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.analysis.diagnosis.rules.slowdown import theil_sen
from stepmeter.units import format_bytes, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.memory.facts import MemorySeries, StepMemoryFacts

MIN_STEPS = 800
SHORT_STEPS = 100
LONG_STEPS = 400
EARLY_BYTES = 512 * 1024**2
CONFIRMED_BYTES = 1024**3
MIN_TREND_WORST, MIN_TREND_MEDIAN = 0.06, 0.04
MIN_SLOPE_WORST, MIN_SLOPE_MEDIAN = 0.015, 0.010
"""Slope in 100 steps as a share of the level."""

MAX_PULL_BACK = 0.02

Series = npt.NDArray[np.float64]


def check(facts: StepMemoryFacts) -> Outcome:
    """Judge the course of both peaks; the one that grew more is reported."""
    found = {
        metric: growth_bytes
        for metric, series in facts.series.items()
        if (growth_bytes := _growth_bytes(series)) is not None
    }
    if not found:
        return None
    metric = max(found, key=lambda name: found[name])
    series, growth_bytes = facts.series[metric].worst_bytes, found[metric]
    baseline_bytes, _, recent_bytes = _bands(series)
    is_confirmed = reaches(growth_bytes, CONFIRMED_BYTES)
    kind = metric.split("_")[1]
    return Issue(
        kind="CREEP_CONFIRMED" if is_confirmed else "CREEP_EARLY",
        status="MEMORY CREEP" if is_confirmed else "MEMORY RISING",
        severity="warn" if is_confirmed else "info",
        summary=(
            f"The {kind} peak of steps grew by {format_bytes(growth_bytes)} "
            f"({format_share(growth_bytes / baseline_bytes)}) over {len(series)} steps, from "
            f"{format_bytes(baseline_bytes)} to {format_bytes(recent_bytes)}."
        ),
        action=(
            "Look for tensors that are kept: sum loss.item() rather than loss, clear lists of outputs; compare "
            "torch.cuda.memory_snapshot() of an early and a late step."
        ),
        metric=metric,
        score=growth_bytes / recent_bytes,
        evidence={
            "growth_bytes": growth_bytes,
            "baseline_bytes": baseline_bytes,
            "recent_bytes": recent_bytes,
            "slope_bytes_per_step": theil_sen(series[-LONG_STEPS:]),
            "steps": len(series),
        },
    )


def _growth_bytes(series: MemorySeries) -> float | None:
    """Growth of the worst rank, when worst and median rank creep."""
    worst, median = series.worst_bytes, series.median_bytes
    if len(worst) < MIN_STEPS:
        return None
    creeps = _creeps(worst, MIN_TREND_WORST, MIN_SLOPE_WORST) and _creeps(median, MIN_TREND_MEDIAN, MIN_SLOPE_MEDIAN)
    baseline_bytes, _, recent_bytes = _bands(worst)
    growth_bytes = recent_bytes - baseline_bytes
    return growth_bytes if creeps and reaches(growth_bytes, EARLY_BYTES) else None


def _bands(series: Series) -> tuple[float, float, float]:
    middle = (len(series) - SHORT_STEPS) // 2
    bands = (series[:SHORT_STEPS], series[middle : middle + SHORT_STEPS], series[-SHORT_STEPS:])
    baseline, halfway, recent = (float(band.mean()) for band in bands)
    return baseline, halfway, recent


def _creeps(series: Series, min_trend: float, min_slope: float) -> bool:
    baseline, middle, recent = _bands(series)
    if not 0 < baseline < middle < recent:
        return False
    late = series[-LONG_STEPS:]
    levels = np.convolve(late, np.full(SHORT_STEPS, 1 / SHORT_STEPS), mode="valid")
    return (
        reaches(recent / baseline - 1.0, min_trend)
        and reaches(theil_sen(late) * 100 / float(late.mean()), min_slope)
        and reaches(MAX_PULL_BACK, 1.0 - recent / float(levels.max()))
    )


RULE = Rule(
    ("CREEP_EARLY", "CREEP_CONFIRMED"),
    check,
    __doc__,
    {
        "min_steps": MIN_STEPS,
        "short_steps": SHORT_STEPS,
        "long_steps": LONG_STEPS,
        "early_bytes": EARLY_BYTES,
        "confirmed_bytes": CONFIRMED_BYTES,
        "min_trend_worst": MIN_TREND_WORST,
        "min_trend_median": MIN_TREND_MEDIAN,
        "min_slope_worst": MIN_SLOPE_WORST,
        "min_slope_median": MIN_SLOPE_MEDIAN,
        "max_pull_back": MAX_PULL_BACK,
    },
)
