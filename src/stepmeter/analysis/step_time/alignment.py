"""From source rows to an aligned window: common steps, one clock, availability, statistics.

Missing is not zero: a phase that was not measured never makes a fast rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.step_time.columns import CLOCKS, WAIT, StepTimeColumns, as_columns
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
from stepmeter.analysis.step_time.statistics import Statistics, summarize

MIN_TYPICAL_STEPS = 2
"""Warm-up steps are left out when at least so many others exist; the fewest steps that a diagnosis takes."""

MAX_LOST_PAIRS_SHARE = 0.05
"""Share of the window whose device times may be lost before the whole window turns to the CPU clock."""

Series = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]
Slices = Mapping[int, slice]
Table = Mapping[tuple[str, Clock], Series]
"""Milliseconds by source metric and clock, shape (ranks, steps); NaN where not measured."""


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
    clock, kept = _choose_clock(table, len(common))
    steps = tuple(common[kept].tolist())
    table = {key: values[:, kept] for key, values in table.items()}
    found = summarize(taking_part, _available(table, clock), _both_clocks(table)) if steps else Statistics()
    return StepTimeWindow(
        clock=clock,
        steps=steps,
        window_size=window_size,
        training_strategy=snapshot.training_strategy,
        expected_ranks=snapshot.global_ranks,
        rank_facts=found.rank_facts,
        identities=snapshot.identities,
        metrics=found.metrics,
        shares=found.shares,
        cohorts=_cohorts(found.rank_facts, snapshot.training_strategy),
        coverage=_coverage(
            snapshot,
            taking_part,
            n_common=len(common),
            not_on_all_ranks=_not_on_all_ranks(rows, slices, shared, common),
            n_steps=len(steps),
            warmup_left_out=warmup_left_out,
            silent=silent,
        ),
        backward_waits_ms=_waits(rows, slices),
    )


def _waits(rows: StepTimeColumns, slices: Slices) -> dict[int, tuple[float, ...]]:
    each = {rank: rows.times_ms[WAIT][rows_of] for rank, rows_of in slices.items()}
    return {
        rank: tuple(np.sort(values[measured]).tolist())
        for rank, values in each.items()
        if (measured := ~np.isnan(values)).any()
    }


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


def _table(rows: StepTimeColumns, slices: Slices, steps: Steps) -> Table:
    positions = [rows_of.start + np.searchsorted(rows.step[rows_of], steps) for rows_of in slices.values()]
    where = np.array(positions, dtype=np.intp).reshape(len(slices), len(steps))
    return {key: times_ms[where] for key, times_ms in rows.times_ms.items()}


def _choose_clock(table: Table, n_steps: int) -> tuple[Clock, npt.NDArray[np.bool_]]:
    """The device clock if it is complete but for a few steps, which are left out; never a mixture."""
    everything = np.ones(n_steps, dtype=np.bool_)
    complete = everything.copy()
    for metric in SOURCE_METRICS:
        lost = np.isnan(table[metric, "gpu"])
        if metric not in {"input_wait", TRACED}:
            lost &= ~np.isnan(table[metric, "cpu"])
        complete &= ~lost.any(axis=0)
    n_lost = n_steps - int(complete.sum())
    if n_steps and n_lost <= MAX_LOST_PAIRS_SHARE * n_steps:
        return "gpu", complete
    return "cpu", everything


def _available(table: Table, clock: Clock) -> dict[str, Series]:
    """Required signals of ranks that measured them on every step; occasional ones on any, zero elsewhere."""
    available = {}
    for metric in SOURCE_METRICS:
        values = table[metric, clock]
        missing = np.isnan(values)
        if metric in OCCASIONAL:
            values = np.where(missing & ~missing.all(axis=1, keepdims=True), 0.0, values)
        available[metric] = values
    return available


def _both_clocks(table: Table) -> dict[tuple[str, Clock], Series]:
    return {(metric, clock): table[metric, clock] for metric in ("input_wait", TRACED) for clock in CLOCKS}


def _cohorts(ranks: Sequence[StepTimeRankFacts], strategy: str | None) -> StepTimeCohorts:
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
        nodes_expected=_nodes(len(snapshot.global_ranks), snapshot.local_world_size),
    )


def _nodes(world_size: int, local_world_size: int | None) -> int | None:
    return -(-world_size // local_world_size) if local_world_size else None
