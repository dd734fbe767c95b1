"""From source rows to an aligned window: common steps, one clock, availability, statistics.

Missing is not zero: a phase that was not measured never makes a fast rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.step_time.columns import StepTimeColumns, as_columns
from stepmeter.analysis.step_time.model import (
    Clock,
    SilentRank,
    StepTimeCohorts,
    StepTimeCoverage,
    StepTimeRankFacts,
    StepTimeWindow,
)
from stepmeter.analysis.step_time.silence import silent_ranks
from stepmeter.analysis.step_time.source import (
    OCCASIONAL,
    SOURCE_METRICS,
    TRACED,
    StepTimeRepositorySnapshot,
)
from stepmeter.analysis.step_time.statistics import rank_facts, rank_metrics, window_shares

MIN_TYPICAL_STEPS = 2
"""Warm-up steps are left out when at least so many others exist; the fewest steps that a diagnosis takes."""

MAX_LOST_PAIRS_SHARE = 0.05
"""Share of the window whose device times may be lost before the whole window turns to the CPU clock."""

Series = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]
Slices = Mapping[int, slice]
Table = Mapping[tuple[int, str, Clock], Series]
"""Milliseconds on each aligned step by rank, source metric and clock; NaN where not measured."""


def align(snapshot: StepTimeRepositorySnapshot, window_size: int) -> StepTimeWindow:
    """Analyze the latest steps that all participating ranks completed.

    Args:
        snapshot: Source facts; several rows for one rank and step are allowed, the largest source id counts.
        window_size: How many steps the window may hold, 1 or more.

    Returns:
        The window; without a common step it has none, and its coverage says what there was.
    """
    rows = as_columns(snapshot.rows)
    silent = silent_ranks(snapshot.progress)
    not_taking_part = {rank.global_rank for rank in silent}
    slices = {rank: rows_of for rank, rows_of in rows.of_ranks().items() if rank not in not_taking_part}
    taking_part = list(slices)
    shared = _shared_steps(rows, slices)
    common, warmup_left_out = _typical_tail(rows, slices, shared, window_size)
    table = _table(rows, slices, common)
    clock, kept = _choose_clock(table, taking_part, len(common))
    steps = tuple(common[kept].tolist())
    table = {key: series[kept] for key, series in table.items()}
    ranks = (
        [rank_facts(rank, _available(table, rank, clock), _both_clocks(table, rank)) for rank in taking_part]
        if steps
        else []
    )
    return StepTimeWindow(
        clock=clock,
        steps=steps,
        window_size=window_size,
        training_strategy=snapshot.training_strategy,
        expected_ranks=snapshot.global_ranks,
        rank_facts=tuple(ranks),
        identities=snapshot.identities,
        metrics=rank_metrics(ranks),
        shares=window_shares(ranks),
        cohorts=_cohorts(ranks, snapshot.training_strategy),
        coverage=_coverage(
            snapshot,
            taking_part,
            n_common=len(common),
            not_on_all_ranks=_not_on_all_ranks(rows, slices, shared, common),
            n_steps=len(steps),
            warmup_left_out=warmup_left_out,
            silent=silent,
        ),
    )


def _shared_steps(rows: StepTimeColumns, slices: Slices) -> Steps:
    """Steps that every participating rank completed, ascending."""
    each = [rows.step[rows_of] for rows_of in slices.values()]
    if not each:
        return np.empty(0, dtype=np.int64)
    return reduce(lambda some, more: np.intersect1d(some, more, assume_unique=True), each)


def _typical_tail(rows: StepTimeColumns, slices: Slices, shared: Steps, window_size: int) -> tuple[Steps, int]:
    """The latest shared steps without warm-up, if enough others exist, and how many were left out."""
    warmup = np.zeros(len(shared), dtype=np.bool_)
    for rows_of in slices.values():
        warmup |= rows.warmup[rows_of][np.searchsorted(rows.step[rows_of], shared)]
    typical = shared[~warmup]
    if len(typical) < MIN_TYPICAL_STEPS:
        return shared[-window_size:], 0
    window = typical[-window_size:]
    reach = shared if len(typical) <= window_size else shared[shared >= window[0]]
    return window, len(reach) - len(window)


def _not_on_all_ranks(rows: StepTimeColumns, slices: Slices, shared: Steps, common: Steps) -> int:
    """Steps within the window's reach that only some of the participating ranks completed."""
    if not len(common):
        return 0
    anywhere = np.unique(np.concatenate([rows.step[rows_of] for rows_of in slices.values()]))
    return _count_within(anywhere, common) - _count_within(shared, common)


def _count_within(steps: Steps, reach: Steps) -> int:
    return int(((steps >= reach[0]) & (steps <= reach[-1])).sum())


def _table(rows: StepTimeColumns, slices: Slices, steps: Steps) -> dict[tuple[int, str, Clock], Series]:
    table: dict[tuple[int, str, Clock], Series] = {}
    for rank, rows_of in slices.items():
        positions = rows_of.start + np.searchsorted(rows.step[rows_of], steps)
        for (metric, clock), times_ms in rows.times_ms.items():
            table[rank, metric, clock] = times_ms[positions]
    return table


def _choose_clock(table: Table, ranks: list[int], n_steps: int) -> tuple[Clock, npt.NDArray[np.bool_]]:
    """The device clock if it is complete but for a few steps, which are left out; never a mixture."""
    everything = np.ones(n_steps, dtype=np.bool_)
    complete = everything.copy()
    for rank in ranks:
        for metric in SOURCE_METRICS:
            gpu_there = ~np.isnan(table[rank, metric, "gpu"])
            must_be_there = metric in {"input_wait", TRACED} or ~np.isnan(table[rank, metric, "cpu"])
            complete &= gpu_there | ~np.broadcast_to(must_be_there, (n_steps,))
    lost = n_steps - int(complete.sum())
    if n_steps and lost <= MAX_LOST_PAIRS_SHARE * n_steps:
        return "gpu", complete
    return "cpu", everything


def _available(table: Table, rank: int, clock: Clock) -> dict[str, Series]:
    """Required signals measured on every step; occasional ones on any, zero elsewhere."""
    available = {}
    for metric in SOURCE_METRICS:
        series = table[rank, metric, clock]
        measured = ~np.isnan(series)
        if measured.all():
            available[metric] = series
        elif metric in OCCASIONAL and measured.any():
            available[metric] = np.where(measured, series, 0.0)
    return available


def _both_clocks(table: Table, rank: int) -> dict[tuple[str, Clock], Series]:
    clocks: tuple[Clock, Clock] = ("cpu", "gpu")
    pairs = {(metric, clock): table[rank, metric, clock] for metric in ("input_wait", TRACED) for clock in clocks}
    return {key: series for key, series in pairs.items() if not np.isnan(series).any()}


def _cohorts(ranks: list[StepTimeRankFacts], strategy: str | None) -> StepTimeCohorts:
    averages = [(facts.global_rank, facts.average) for facts in ranks]
    needs_forward = (strategy or "").startswith("fsdp")
    return StepTimeCohorts(
        step=tuple(rank for rank, mean in averages if mean.step_time_ms is not None),
        compute=tuple(rank for rank, mean in averages if None not in {mean.step_time_ms, mean.compute_ms}),
        straggler=tuple(
            rank
            for rank, mean in averages
            if mean.input_wait_ms is not None
            and (mean.step_time_ms or 0.0) > 0
            and (mean.backward_ms or 0.0) > 0
            and (not needs_forward or (mean.forward_ms or 0.0) > 0)
        ),
    )


def _coverage(
    snapshot: StepTimeRepositorySnapshot,
    ranks: list[int],
    *,
    n_common: int,
    not_on_all_ranks: int,
    n_steps: int,
    warmup_left_out: int,
    silent: tuple[SilentRank, ...],
) -> StepTimeCoverage:
    progress = snapshot.progress
    last_steps = [progress[rank].last_step for rank in ranks if rank in progress]
    everyone = progress.values()
    span_ns = (
        max(item.last_end_ns for item in everyone) - min(item.first_start_ns for item in everyone) if everyone else None
    )
    return StepTimeCoverage(
        expected_steps=n_common + not_on_all_ranks,
        steps_used=n_steps,
        world_size=len(snapshot.global_ranks),
        ranks_present=len(ranks),
        completed_step=min(last_steps, default=None),
        latest_step=max((item.last_step for item in everyone), default=None),
        warmup_left_out=warmup_left_out,
        gpu_pairs_lost=n_common - n_steps,
        recorded_steps=sum(item.recorded_steps for item in everyone),
        missing_steps={rank: item.missing_steps for rank, item in sorted(progress.items()) if item.missing_steps > 0},
        dropped=snapshot.dropped,
        silent=silent,
        duration_s=None if span_ns is None else span_ns / 1e9,
    )
