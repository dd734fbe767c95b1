"""Step time out of the store: two selection profiles, one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stepmeter.analysis.queries import query
from stepmeter.analysis.step_time.columns import StepTimeColumns, as_columns, from_store
from stepmeter.analysis.step_time.model import LIVE_WINDOW_STEPS, SUMMARY_WINDOW_STEPS, Profile
from stepmeter.analysis.step_time.source import (
    RankIdentity,
    RankProgress,
    StepTimeRepositorySnapshot,
    StepTimeSourceCursor,
)
from stepmeter.analysis.step_time.tail import RankPosition, Tail, last_shared_step, read_tail

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

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

    def position(self) -> RankPosition:
        """How far the rank has come."""
        return RankPosition(
            RankProgress(*self[3:8]),
            RankIdentity(self.rank, self.local_rank, self.node_rank, self.host, self.world_size, self.hw_id),
            self.strategy,
        )


def load(
    source: Snapshot,
    profile: Profile,
    window_size: int,
    previous: StepTimeRepositorySnapshot | None = None,
) -> StepTimeRepositorySnapshot:
    """Read the latest attempt's tail.

    Args:
        source: One snapshot of the store, so that all statements see the same steps.
        profile: `live` takes at most two statements and the shorter tail; `summary` also reads what producers lost.
        window_size: How many steps the window may hold, 1 or more.
        previous: What was read before, with the same profile and window size.

    Returns:
        The source facts; `previous` itself when nothing new was stored, or nothing that changes what was read.
    """
    position = _position(source, profile)
    if previous is not None and position == previous.store_cursor:
        return previous
    lookback_steps = round(window_size * LOOKBACK_FACTOR[profile])
    if profile == "live":
        found = _live(source, lookback_steps, previous, position)
    else:
        found = _summary(source, lookback_steps, position)
    return previous if previous is not None and _is_unchanged(previous, found) else found


def _position(source: Snapshot, profile: Profile) -> Hashable:
    """The newest segments of the tables that the profile reads."""
    tables = {"steps"} if profile == "live" else {"steps", "metric_points"}
    return tuple(entry for entry in source.cursor if entry[0] in tables)


def _is_unchanged(previous: StepTimeRepositorySnapshot, found: StepTimeRepositorySnapshot) -> bool:
    """Whether segments came that hold nothing new, as compaction makes them."""
    return (
        (previous.cursor, previous.global_ranks, previous.training_strategy, previous.dropped)
        == (found.cursor, found.global_ranks, found.training_strategy, found.dropped)
        and isinstance(previous.rows, StepTimeColumns)
        and previous.rows.same_as(found.rows)
    )


def _live(
    source: Snapshot, lookback_steps: int, previous: StepTimeRepositorySnapshot | None, position: Hashable
) -> StepTimeRepositorySnapshot:
    if previous is not None and previous.cursor.attempt is not None and previous.rows:
        known = {
            rank: RankPosition(progress, previous.identities[rank], previous.training_strategy)
            for rank, progress in previous.progress.items()
        }
        since_ns = int(as_columns(previous.rows).source_id.min())
        tail = read_tail(source, previous.cursor.attempt, since_ns, known, lookback_steps)
        return _snapshot(tail, previous.attempts + tail.attempt - previous.cursor.attempt, position)
    progress = [_Progress(*row) for row in source.rows(query("step_progress"))]
    if not progress:
        return StepTimeRepositorySnapshot(store_cursor=position)
    known = {item.rank: item.position() for item in progress}
    return _snapshot(read_tail(source, progress[0].attempt, 0, known, lookback_steps), progress[0].attempts, position)


def _summary(source: Snapshot, lookback_steps: int, position: Hashable) -> StepTimeRepositorySnapshot:
    progress = [_Progress(*row) for row in source.rows(query("step_progress"))]
    dropped = dict(source.rows(query("dropped")))
    if not progress:
        return StepTimeRepositorySnapshot(store_cursor=position, dropped=dropped)
    attempt, positions = progress[0].attempt, {item.rank: item.position() for item in progress}
    last = last_shared_step({rank: item.progress for rank, item in positions.items()})
    rows = from_store(source.columns(query("step_rows"), (attempt, last - lookback_steps + 1, last)))
    recorded = sum(item.recorded_steps for item in progress)
    return _snapshot(Tail(attempt, rows, positions), progress[0].attempts, position, recorded, dropped)


def _snapshot(
    tail: Tail,
    attempts: int,
    position: Hashable,
    recorded_steps: int | None = None,
    dropped: Mapping[str, int] | None = None,
) -> StepTimeRepositorySnapshot:
    positions = dict(sorted(tail.positions.items()))
    progress = {rank: item.progress for rank, item in positions.items()}
    promised = max(item.identity.world_size or 0 for item in positions.values())
    return StepTimeRepositorySnapshot(
        rows=tail.rows,
        global_ranks=tuple(sorted({*positions, *range(promised)})),
        identities={rank: item.identity for rank, item in positions.items()},
        cursor=StepTimeSourceCursor(
            attempt=tail.attempt,
            recorded_steps=len(tail.rows) if recorded_steps is None else recorded_steps,
            latest_step=max(item.last_step for item in progress.values()),
            last_end_ns=max(item.last_end_ns for item in progress.values()),
        ),
        # the lowest rank that knows it decides; all ranks of a run share one
        training_strategy=next((item.strategy for item in positions.values() if item.strategy), None),
        progress=progress,
        dropped=dropped or {},
        attempts=attempts,
        store_cursor=position,
    )
