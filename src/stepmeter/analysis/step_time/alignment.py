"""From source rows to an aligned window: common steps, one clock, availability, statistics.

Missing is not zero: a phase that was not measured never makes a fast rank.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

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
    StepTimeSourceRow,
)
from stepmeter.analysis.step_time.statistics import rank_facts, rank_metrics, window_shares

MIN_TYPICAL_STEPS = 2
"""Warm-up steps are left out when at least so many others exist; the fewest steps that a diagnosis takes."""

MAX_LOST_PAIRS_SHARE = 0.05
"""Share of the window whose device times may be lost before the whole window turns to the CPU clock."""

Series = npt.NDArray[np.float64]
RowIndex = Mapping[int, Mapping[int, StepTimeSourceRow]]
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
    index = _index(snapshot.rows)
    silent = silent_ranks(snapshot.progress)
    taking_part = sorted(set(index) - {rank.global_rank for rank in silent})
    common, warmup_left_out = _common_steps(index, taking_part, window_size)
    table = _table(index, taking_part, common)
    clock, kept = _choose_clock(table, taking_part, len(common))
    steps = tuple(step for step, keep in zip(common, kept, strict=True) if keep)
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
            index,
            taking_part,
            common=common,
            steps=steps,
            warmup_left_out=warmup_left_out,
            silent=silent,
        ),
    )


def _index(rows: Iterable[StepTimeSourceRow]) -> dict[int, dict[int, StepTimeSourceRow]]:
    index: dict[int, dict[int, StepTimeSourceRow]] = defaultdict(dict)
    for row in rows:
        known = index[row.global_rank].get(row.step)
        if known is None or row.source_id >= known.source_id:
            index[row.global_rank][row.step] = row
    return dict(index)


def _common_steps(index: RowIndex, ranks: list[int], window_size: int) -> tuple[list[int], int]:
    if not ranks:
        return [], 0
    common = sorted(set.intersection(*(set(index[rank]) for rank in ranks)))
    typical = [step for step in common if not any(index[rank][step].warmup for rank in ranks)]
    if len(typical) < MIN_TYPICAL_STEPS:
        return common[-window_size:], 0
    window = typical[-window_size:]
    reach = common if len(typical) <= window_size else [step for step in common if step >= window[0]]
    return window, len(reach) - len(window)


def _table(index: RowIndex, ranks: list[int], steps: list[int]) -> dict[tuple[int, str, Clock], Series]:
    table: dict[tuple[int, str, Clock], Series] = {}
    for rank in ranks:
        rows = index[rank]
        for metric in SOURCE_METRICS:
            pairs = [rows[step].metrics.get(metric, (None, None)) for step in steps]
            both = np.array(pairs, dtype=np.float64).reshape(-1, 2)
            table[rank, metric, "cpu"] = both[:, 0]
            table[rank, metric, "gpu"] = both[:, 1]
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
    index: RowIndex,
    ranks: list[int],
    *,
    common: list[int],
    steps: tuple[int, ...],
    warmup_left_out: int,
    silent: tuple[SilentRank, ...],
) -> StepTimeCoverage:
    progress = snapshot.progress
    reached = {step for rank in ranks for step in index[rank] if common and common[0] <= step <= common[-1]}
    not_on_all_ranks = sum(any(step not in index[rank] for rank in ranks) for step in reached)
    last_steps = [progress[rank].last_step for rank in ranks if rank in progress]
    everyone = progress.values()
    span_ns = (
        max(item.last_end_ns for item in everyone) - min(item.first_start_ns for item in everyone) if everyone else None
    )
    return StepTimeCoverage(
        expected_steps=len(common) + not_on_all_ranks,
        steps_used=len(steps),
        world_size=len(snapshot.global_ranks),
        ranks_present=len(ranks),
        completed_step=min(last_steps, default=None),
        latest_step=max((item.last_step for item in everyone), default=None),
        warmup_left_out=warmup_left_out,
        gpu_pairs_lost=len(common) - len(steps),
        recorded_steps=sum(item.recorded_steps for item in everyone),
        missing_steps={rank: item.missing_steps for rank, item in sorted(progress.items()) if item.missing_steps > 0},
        dropped=snapshot.dropped,
        silent=silent,
        duration_s=None if span_ns is None else span_ns / 1e9,
    )
