"""Derived metrics of each rank, statistics across ranks, and shares, with their intervals.

Everything is computed for all metrics and ranks at once, in arrays of shape (metrics, ranks, steps) where a rank
that did not measure a metric is NaN throughout: a live view does this every second, and a loop over ranks took ten
times as long.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.step_time.model import (
    METRICS,
    SHARE_COMPONENTS,
    Clock,
    StepTimeMetric,
    StepTimeRankFacts,
    StepTimeShare,
    StepTimeValues,
)
from stepmeter.analysis.step_time.resampling import interval, resampling
from stepmeter.analysis.step_time.source import TRACED

Series = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_STEP_TIME = "step_time_ms"
_SELECTED = {
    "input_wait_ms": "input_wait",
    "traced_step_time_ms": TRACED,
    "h2d_ms": "h2d",
    "forward_ms": "forward",
    "backward_ms": "backward",
    "optimizer_ms": "optimizer",
}


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a window's numbers come to.

    Attributes:
        rank_facts: What each rank did, by rank ascending.
        metrics: Statistics of each metric that any rank measured.
        shares: Share of each component that any rank with a positive step time measured.
    """

    rank_facts: tuple[StepTimeRankFacts, ...] = ()
    metrics: Mapping[str, StepTimeMetric] = field(default_factory=dict)
    shares: Mapping[str, StepTimeShare] = field(default_factory=dict)


def summarize(
    ranks: Sequence[int], available: Mapping[str, Series], clocks: Mapping[tuple[str, Clock], Series]
) -> Statistics:
    """Derive each rank's metrics step by step, average them, and compare ranks.

    Args:
        ranks: The ranks, ascending.
        available: Source metrics on the selected clock, shape (ranks, steps), in ms; a rank for which a metric does not
            count has NaN on some or all steps.
        clocks: Input wait and traced time by clock, shape (ranks, steps), in ms; NaN where not measured.

    Returns:
        The statistics; intervals are 95 % intervals over steps, see `resampling`.
    """
    series = {name: available[source] for name, source in _SELECTED.items()}
    series |= _derived(available) | _clock_aggregates(clocks)
    names = [name for name in METRICS if not np.isnan(series[name]).any(axis=1).all()]
    cube = np.array([series[name] for name in names]).reshape(len(names), *available[TRACED].shape)
    means = cube.mean(axis=2)
    measured = ~np.isnan(means)
    draws = resampling(cube.shape[2]).means(cube)
    shares, typical = _shares(names, cube, means)
    return Statistics(
        rank_facts=tuple(
            _facts(rank, names, cube[:, row], means[:, row], shares[:, row], typical[:, row])
            for row, rank in enumerate(ranks)
        ),
        metrics=_metrics(ranks, names, cube, means, measured, draws),
        shares=_window_shares(names, shares, typical, draws),
    )


def _derived(available: Mapping[str, Series]) -> dict[str, Series]:
    traced = available[TRACED]
    compute = available["forward"] + available["backward"] + available["optimizer"]
    transfers = available["h2d"]
    no_transfers = np.where(np.isnan(transfers).any(axis=1, keepdims=True), 0.0, transfers)
    return {
        _STEP_TIME: available["input_wait"] + traced,
        "compute_ms": compute,
        "residual_ms": np.maximum(0.0, traced - no_transfers - compute),
    }


def _clock_aggregates(clocks: Mapping[tuple[str, Clock], Series]) -> dict[str, Series]:
    aggregates = {"dataloader_fetch_cpu_ms": clocks["input_wait", "cpu"]}
    names: tuple[Clock, Clock] = ("cpu", "gpu")
    for clock in names:
        aggregates[f"traced_step_time_{clock}_ms"] = clocks[TRACED, clock]
        aggregates[f"step_time_{clock}_ms"] = clocks["input_wait", clock] + clocks[TRACED, clock]
    return aggregates


def _shares(names: Sequence[str], cube: Series, means: Series) -> tuple[Series, Series]:
    """Mean and median share of each metric in step time, shape (metrics, ranks); NaN where there is none."""
    nothing = np.full(means.shape, np.nan)
    if _STEP_TIME not in names:
        return nothing, nothing
    step_time, mean = cube[names.index(_STEP_TIME)], means[names.index(_STEP_TIME)]
    whole = np.where(mean > 0, mean, np.nan)
    ratios = cube / np.where(step_time > 0, step_time, np.nan)
    some_steps_are_empty = bool((step_time <= 0).any())
    typical = _median_of_known(ratios) if some_steps_are_empty else np.median(ratios, axis=2)
    return means / whole, np.where(np.isnan(whole), np.nan, typical)


def _median_of_known(ratios: Series) -> Series:
    """Median over steps that have a share; NaN for a rank that has none."""
    known = ~np.isnan(ratios).all(axis=2)
    medians = np.full(known.shape, np.nan)
    medians[known] = np.nanmedian(ratios[known], axis=1)
    return medians


def _facts(
    rank: int, names: Sequence[str], series: Series, means: Series, shares: Series, typical: Series
) -> StepTimeRankFacts:
    rows = [row for row, mean in enumerate(means) if not np.isnan(mean)]
    components = [row for row in rows if names[row] in SHARE_COMPONENTS and not np.isnan(shares[row])]
    return StepTimeRankFacts(
        global_rank=rank,
        average=StepTimeValues(**{names[row]: float(means[row]) for row in rows}),
        series={names[row]: tuple(series[row].tolist()) for row in rows},
        shares={names[row]: float(shares[row]) for row in components},
        typical_shares={names[row]: float(typical[row]) for row in components},
    )


def _metrics(
    ranks: Sequence[int], names: Sequence[str], cube: Series, means: Series, measured: Mask, draws: Series
) -> dict[str, StepTimeMetric]:
    """Statistics of each metric, computed together for the metrics that the same ranks measured."""
    metrics: dict[str, StepTimeMetric] = {}
    for who in {tuple(row) for row in measured.tolist()}:
        mask = np.array(who)
        group = np.flatnonzero((measured == mask).all(axis=1))
        having = [rank for rank, has in zip(ranks, who, strict=True) if has]
        values, some = means[np.ix_(group, mask)], cube[np.ix_(group, mask)]
        lows, highs = interval(draws[np.ix_(group, mask)])
        medians, over_ranks, worst = np.median(values, axis=1), np.median(some, axis=1), some.max(axis=1)
        for row, index in enumerate(group.tolist()):
            metrics[names[index]] = _metric(
                names[index],
                dict(zip(having, values[row].tolist(), strict=True)),
                (float(medians[row]), float(lows[row]), float(highs[row])),
                tuple(over_ranks[row].tolist()),
                tuple(worst[row].tolist()),
            )
    return {name: metrics[name] for name in names}


def _metric(
    name: str,
    values: Mapping[int, float],
    median_and_interval: tuple[float, float, float],
    median_series: tuple[float, ...],
    worst_series: tuple[float, ...],
) -> StepTimeMetric:
    median, low, high = median_and_interval
    representative = min(values, key=lambda rank: (abs(values[rank] - median), values[rank], rank))
    worst = min(values, key=lambda rank: (-values[rank], rank))
    return StepTimeMetric(
        name=name,
        ranks=tuple(values),
        average_ms=sum(values.values()) / len(values),
        median_ms=median,
        low_ms=low,
        high_ms=high,
        representative_rank=representative,
        representative_ms=values[representative],
        worst_rank=worst,
        worst_ms=values[worst],
        skew=_skew(median, values[worst]) if len(values) > 1 else None,
        median_series_ms=median_series,
        worst_series_ms=worst_series,
    )


def _skew(median: float, worst: float) -> float | None:
    if median == 0:
        return 0.0 if worst == 0 else None
    return (worst - median) / median


def _window_shares(names: Sequence[str], shares: Series, typical: Series, draws: Series) -> dict[str, StepTimeShare]:
    """Medians over ranks, computed together for the components that the same ranks have."""
    rows = [names.index(name) for name in SHARE_COMPONENTS if name in names]
    if _STEP_TIME not in names or not rows:
        return {}
    wholes, having = draws[names.index(_STEP_TIME)], ~np.isnan(shares[rows])
    found: dict[str, StepTimeShare] = {}
    for who in {tuple(row) for row in having.tolist() if any(row)}:
        mask = np.array(who)
        group = np.array(rows)[(having == mask).all(axis=1)]
        whole, parts = wholes[mask], draws[np.ix_(group, mask)]
        lows, highs = interval(np.divide(parts, whole, out=np.zeros_like(parts), where=whole > 0))
        of_means, of_steps = (np.median(values[np.ix_(group, mask)], axis=1) for values in (shares, typical))
        for place, row in enumerate(group.tolist()):
            figures = (of_means[place], of_steps[place], lows[place], highs[place])
            found[names[row]] = StepTimeShare(*(float(value) for value in figures))
    return {name: found[name] for name in SHARE_COMPONENTS if name in found}
