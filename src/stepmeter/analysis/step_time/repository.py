"""Step time out of the store: two selection profiles, one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from stepmeter.analysis.queries import query
from stepmeter.analysis.step_time.model import LIVE_WINDOW_STEPS, SUMMARY_WINDOW_STEPS, Profile
from stepmeter.analysis.step_time.silence import silent_ranks
from stepmeter.analysis.step_time.source import (
    SOURCE_METRICS,
    RankIdentity,
    RankProgress,
    StepTimeRepositorySnapshot,
    StepTimeSourceCursor,
    StepTimeSourceRow,
)
from stepmeter.units import milliseconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from stepmeter.store.reader import Snapshot

DEFAULT_WINDOW_STEPS: dict[Profile, int] = {"live": LIVE_WINDOW_STEPS, "summary": SUMMARY_WINDOW_STEPS}
LOOKBACK_FACTOR: dict[Profile, float] = {"live": 4.0, "summary": 1.2}
"""How far back rows are read, in windows, so that alignment finds enough common steps although some are missing."""


class _Progress(NamedTuple):
    """One row of `sql/step_progress.sql`."""

    attempt: int
    attempts: int
    rank: int
    recorded_steps: int
    first_step: int
    last_step: int
    first_start_ns: int
    last_end_ns: int
    strategy: str | None
    world_size: int | None
    local_rank: int | None
    node_rank: int | None
    host: str | None
    hw_id: str | None


def load(
    source: Snapshot,
    profile: Profile,
    window_size: int,
    previous: StepTimeRepositorySnapshot | None = None,
) -> StepTimeRepositorySnapshot:
    """Read the latest attempt's tail.

    Args:
        source: One snapshot of the store, so that all statements see the same steps.
        profile: `live` takes two statements and the shorter tail; `summary` also reads what producers lost.
        window_size: How many steps the window may hold, 1 or more.
        previous: What was read before.

    Returns:
        The source facts; `previous` itself when cursor, rank universe and strategy are unchanged, in which case no
        row was read.
    """
    progress = [_Progress(*row) for row in source.rows(query("step_progress"))]
    cursor, ranks, strategy = _cursor(progress), _universe(progress), _strategy(progress)
    if previous is not None and (previous.cursor, previous.global_ranks, previous.training_strategy) == (
        cursor,
        ranks,
        strategy,
    ):
        return previous
    reached = {item.rank: RankProgress(*item[3:8]) for item in progress}
    return StepTimeRepositorySnapshot(
        rows=_rows(source, cursor.attempt, reached, round(window_size * LOOKBACK_FACTOR[profile])),
        global_ranks=ranks,
        identities={item.rank: _identity(item) for item in progress},
        cursor=cursor,
        training_strategy=strategy,
        progress=reached,
        dropped=dict(source.rows(query("dropped"))) if profile == "summary" else {},
        attempts=progress[0].attempts if progress else 0,
    )


def _cursor(progress: Sequence[_Progress]) -> StepTimeSourceCursor:
    if not progress:
        return StepTimeSourceCursor()
    return StepTimeSourceCursor(
        attempt=progress[0].attempt,
        recorded_steps=sum(item.recorded_steps for item in progress),
        latest_step=max(item.last_step for item in progress),
        last_end_ns=max(item.last_end_ns for item in progress),
    )


def _universe(progress: Sequence[_Progress]) -> tuple[int, ...]:
    promised = max((item.world_size or 0 for item in progress), default=0)
    return tuple(sorted({item.rank for item in progress} | set(range(promised))))


def _strategy(progress: Sequence[_Progress]) -> str | None:
    """The lowest rank that knows it decides; all ranks of a run share one."""
    return next((item.strategy for item in progress if item.strategy), None)


def _identity(item: _Progress) -> RankIdentity:
    return RankIdentity(item.rank, item.local_rank, item.node_rank, item.host, item.world_size, item.hw_id)


def _rows(
    source: Snapshot, attempt: int | None, progress: Mapping[int, RankProgress], lookback_steps: int
) -> tuple[StepTimeSourceRow, ...]:
    """The tail up to the last step that every participating rank completed; silent ranks do not hold it back."""
    silent = {rank.global_rank for rank in silent_ranks(progress)}
    last = min((item.last_step for rank, item in progress.items() if rank not in silent), default=None)
    if last is None:
        return ()
    return tuple(_decode(row) for row in source.rows(query("step_rows"), (attempt, last - lookback_steps + 1, last)))


def _decode(row: tuple[Any, ...]) -> StepTimeSourceRow:
    source_id, rank, step, warmup, *durations_ns = row
    pairs = zip(SOURCE_METRICS, durations_ns[::2], durations_ns[1::2], strict=True)
    metrics = {
        metric: (
            None if cpu_ns is None else milliseconds(cpu_ns),
            None if gpu_ns is None else milliseconds(gpu_ns),
        )
        for metric, cpu_ns, gpu_ns in pairs
        if cpu_ns is not None or gpu_ns is not None
    }
    return StepTimeSourceRow(source_id, rank, step, metrics, warmup)
