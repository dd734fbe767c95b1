"""Derived metrics of a rank, statistics across ranks, and shares with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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

_STEP_TIME = "step_time_ms"
_SELECTED = {
    "input_wait_ms": "input_wait",
    "traced_step_time_ms": TRACED,
    "h2d_ms": "h2d",
    "forward_ms": "forward",
    "backward_ms": "backward",
    "optimizer_ms": "optimizer",
}


def rank_facts(
    global_rank: int, available: Mapping[str, Series], clocks: Mapping[tuple[str, Clock], Series]
) -> StepTimeRankFacts:
    """Derive a rank's metrics step by step, then average them.

    Args:
        global_rank: The rank.
        available: Source metrics that count for the rank on the selected clock, shape (steps,), in ms.
        clocks: Input wait and traced time by clock where measured on every step, shape (steps,), in ms.

    Returns:
        The rank's averages, series and shares.
    """
    series = {name: available[source] for name, source in _SELECTED.items() if source in available}
    series |= _derived(available) | _clock_aggregates(clocks)
    step_time = series.get(_STEP_TIME)
    return StepTimeRankFacts(
        global_rank=global_rank,
        average=StepTimeValues(**{name: float(values.mean()) for name, values in series.items()}),
        series={name: tuple(series[name].tolist()) for name in METRICS if name in series},
        shares=_shares(series, step_time),
        typical_shares=_typical_shares(series, step_time),
    )


def _derived(available: Mapping[str, Series]) -> dict[str, Series]:
    derived = {}
    if "input_wait" in available and TRACED in available:
        derived[_STEP_TIME] = available["input_wait"] + available[TRACED]
    if {"forward", "backward", "optimizer"} <= available.keys():
        derived["compute_ms"] = available["forward"] + available["backward"] + available["optimizer"]
        if TRACED in available:
            transfers = available.get("h2d", np.zeros_like(available[TRACED]))
            derived["residual_ms"] = np.maximum(0.0, available[TRACED] - transfers - derived["compute_ms"])
    return derived


def _clock_aggregates(clocks: Mapping[tuple[str, Clock], Series]) -> dict[str, Series]:
    aggregates = {}
    names: tuple[Clock, Clock] = ("cpu", "gpu")
    for clock in names:
        traced, wait = clocks.get((TRACED, clock)), clocks.get(("input_wait", clock))
        if traced is not None:
            aggregates[f"traced_step_time_{clock}_ms"] = traced
            if wait is not None:
                aggregates[f"step_time_{clock}_ms"] = wait + traced
    if ("input_wait", "cpu") in clocks:
        aggregates["dataloader_fetch_cpu_ms"] = clocks["input_wait", "cpu"]
    return aggregates


def _shares(series: Mapping[str, Series], step_time: Series | None) -> dict[str, float]:
    if step_time is None or step_time.mean() <= 0:
        return {}
    return {name: float(series[name].mean() / step_time.mean()) for name in SHARE_COMPONENTS if name in series}


def _typical_shares(series: Mapping[str, Series], step_time: Series | None) -> dict[str, float]:
    if step_time is None or not (step_time > 0).any():
        return {}
    some = step_time > 0
    return {name: float(np.median(series[name][some] / step_time[some])) for name in SHARE_COMPONENTS if name in series}


def rank_metrics(ranks: Sequence[StepTimeRankFacts]) -> dict[str, StepTimeMetric]:
    """Statistics of each metric over the ranks that measured it.

    Args:
        ranks: The participating ranks, ascending, all with the same steps.

    Returns:
        One entry for each metric that any rank measured.
    """
    metrics: dict[str, StepTimeMetric] = {}
    for name in METRICS:
        values = {facts.global_rank: value for facts in ranks if (value := facts.average.get(name)) is not None}
        if values:
            table = np.array([facts.series[name] for facts in ranks if facts.global_rank in values])
            metrics[name] = _metric(name, values, table)
    return metrics


def _metric(name: str, values: Mapping[int, float], table: Series) -> StepTimeMetric:
    median = float(np.median(list(values.values())))
    representative = min(values, key=lambda rank: (abs(values[rank] - median), values[rank], rank))
    worst = min(values, key=lambda rank: (-values[rank], rank))
    low_ms, high_ms = interval(resampling(table.shape[1]).means(table))
    return StepTimeMetric(
        name=name,
        ranks=tuple(values),
        average_ms=float(np.mean(list(values.values()))),
        median_ms=median,
        low_ms=low_ms,
        high_ms=high_ms,
        representative_rank=representative,
        representative_ms=values[representative],
        worst_rank=worst,
        worst_ms=values[worst],
        skew=_skew(median, values[worst]) if len(values) > 1 else None,
        median_series_ms=tuple(np.median(table, axis=0).tolist()),
        worst_series_ms=tuple(table.max(axis=0).tolist()),
    )


def _skew(median: float, worst: float) -> float | None:
    if median == 0:
        return 0.0 if worst == 0 else None
    return (worst - median) / median


def window_shares(ranks: Sequence[StepTimeRankFacts]) -> dict[str, StepTimeShare]:
    """Share of each component in step time, as medians over the ranks that have both.

    Args:
        ranks: The participating ranks, all with the same steps.

    Returns:
        One entry for each component that any rank with a positive step time measured.
    """
    having = [facts for facts in ranks if facts.shares]
    if not having:
        return {}
    draws = resampling(len(having[0].series[_STEP_TIME]))
    wholes = draws.means([facts.series[_STEP_TIME] for facts in having])
    shares = {}
    for name in SHARE_COMPONENTS:
        measured = np.array([name in facts.shares for facts in having])
        if measured.any():
            some = [facts for facts in having if name in facts.shares]
            parts = draws.means([facts.series[name] for facts in some])
            low, high = interval(
                np.divide(parts, wholes[measured], out=np.zeros_like(parts), where=wholes[measured] > 0)
            )
            shares[name] = StepTimeShare(
                mean=float(np.median([facts.shares[name] for facts in some])),
                typical=float(np.median([facts.typical_shares[name] for facts in some])),
                low=low,
                high=high,
            )
    return shares
