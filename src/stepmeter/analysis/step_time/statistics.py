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
from stepmeter.analysis.step_time.source import TRACED

BOOTSTRAP_SAMPLES = 200
BOOTSTRAP_SEED = 20_260_101
"""The interval of a share must not change from one reading of a run to the next."""

INTERVAL_PERCENTILES = (2.5, 97.5)

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
        ranks: The participating ranks, ascending.

    Returns:
        One entry for each metric that any rank measured.
    """
    metrics = {}
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
    return StepTimeMetric(
        name=name,
        ranks=tuple(values),
        average_ms=float(np.mean(list(values.values()))),
        median_ms=median,
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
        ranks: The participating ranks.

    Returns:
        One entry for each component that any rank with a positive step time measured. The interval is a seeded
        circular block bootstrap over steps; blocks keep neighbouring steps together since they resemble each other.

    Source: Politis and Romano, "A circular block-resampling procedure for stationary data", 1992.
    """
    shares = {}
    for name in SHARE_COMPONENTS:
        having = [facts for facts in ranks if name in facts.shares]
        if having:
            low, high = _interval(having, name)
            shares[name] = StepTimeShare(
                mean=float(np.median([facts.shares[name] for facts in having])),
                typical=float(np.median([facts.typical_shares[name] for facts in having])),
                low=low,
                high=high,
            )
    return shares


def _interval(ranks: Sequence[StepTimeRankFacts], name: str) -> tuple[float, float]:
    component = np.array([facts.series[name] for facts in ranks])
    step_time = np.array([facts.series[_STEP_TIME] for facts in ranks])
    n_steps = component.shape[1]
    block = max(1, round(n_steps ** (1 / 3)))
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    starts = generator.integers(0, n_steps, size=(BOOTSTRAP_SAMPLES, -(-n_steps // block)))
    totals = _block_sums(component, block)[:, starts].sum(axis=2)
    wholes = _block_sums(step_time, block)[:, starts].sum(axis=2)
    ratios = np.divide(totals, wholes, out=np.zeros_like(totals), where=wholes > 0)
    low, high = np.percentile(np.median(ratios, axis=0), INTERVAL_PERCENTILES)
    return float(low), float(high)


def _block_sums(table: Series, block: int) -> Series:
    """Sum of each circular run of `block` steps, by the step at which it starts."""
    around = np.concatenate([table, table[:, : block - 1]], axis=1) if block > 1 else table
    sums = np.cumsum(np.pad(around, ((0, 0), (1, 0))), axis=1)
    differences: Series = sums[:, block:] - sums[:, :-block]
    return differences
