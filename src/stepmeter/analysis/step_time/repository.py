"""Step time out of the store: two selection profiles, one shape."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepmeter.analysis.queries import query
from stepmeter.analysis.step_time.columns import StepTimeColumns, as_columns, from_store
from stepmeter.analysis.step_time.model import LIVE_WINDOW_STEPS, SUMMARY_WINDOW_STEPS, Profile
from stepmeter.analysis.step_time.source import StepTimeRepositorySnapshot, StepTimeSourceCursor
from stepmeter.analysis.step_time.tail import Tail, last_shared_step, positions_of, read_tail
from stepmeter.store.listing import Cursor
from stepmeter.store.watermark import RankWatermark

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from stepmeter.store.snapshot import Snapshot

DEFAULT_WINDOW_STEPS: dict[Profile, int] = {"live": LIVE_WINDOW_STEPS, "summary": SUMMARY_WINDOW_STEPS}
LOOKBACK_FACTOR: dict[Profile, float] = {"live": 4.0, "summary": 1.2}
"""How far back rows are read, in windows, so that alignment finds enough common steps although some are missing."""


def load(
    source: Snapshot,
    profile: Profile,
    window_size: int,
    previous: StepTimeRepositorySnapshot | None = None,
) -> StepTimeRepositorySnapshot:
    """Read the latest attempt's tail.

    Args:
        source: One snapshot of the store, so that all statements see the same steps.
        profile: `live` takes one statement, two without watermarks, and the shorter tail; `summary` counts every step
            and also reads what producers lost.
        window_size: How many steps the window may hold, 1 or more.
        previous: What was read before, with the same profile and window size.

    Returns:
        The source facts; `previous` itself when nothing new was stored, or nothing that changes what was read.
    """
    position = _position(source, profile)
    if previous is not None and position == previous.store_position:
        return previous
    lookback_steps = round(window_size * LOOKBACK_FACTOR[profile])
    read = _live(source, lookback_steps, previous) if profile == "live" else _summary(source, lookback_steps)
    found = replace(read, store_cursor=source.cursor, store_position=position)
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
    source: Snapshot, lookback_steps: int, previous: StepTimeRepositorySnapshot | None
) -> StepTimeRepositorySnapshot:
    marks = source.watermark()
    if not marks:
        return StepTimeRepositorySnapshot()
    attempt = marks[-1].attempt
    known = positions_of(marks, attempt)
    first_step = last_shared_step(known) - lookback_steps + 1
    if previous is None or not _goes_on(previous, attempt, first_step, source.cursor):
        return _snapshot(read_tail(source, attempt, known, lookback_steps, None), _attempts(marks))
    before = Tail(attempt, previous.first_step, as_columns(previous.rows), {})
    newer = source.since(previous.store_cursor)
    return _snapshot(read_tail(newer, attempt, known, lookback_steps, before), _attempts(marks))


def _goes_on(previous: StepTimeRepositorySnapshot, attempt: int, first_step: int, cursor: Cursor) -> bool:
    """Whether later rows can be joined to what was read: the same attempt, from far enough back, nothing gone since."""
    now = {(table, collector): number for table, collector, number in cursor}
    return (
        previous.cursor.attempt == attempt
        and previous.first_step <= first_step
        and all(number <= now.get((table, collector), "") for table, collector, number in previous.store_cursor)
    )


def _attempts(marks: Sequence[RankWatermark]) -> int:
    return len({mark.attempt for mark in marks})


def _summary(source: Snapshot, lookback_steps: int) -> StepTimeRepositorySnapshot:
    dropped = dict(source.rows(query("dropped")))
    marks = [RankWatermark(*row) for row in source.rows(query("step_progress"))]
    if not marks:
        return StepTimeRepositorySnapshot(dropped=dropped)
    attempt = marks[-1].attempt
    positions = positions_of(marks, attempt)
    last = last_shared_step(positions)
    first = last - lookback_steps + 1
    rows = from_store(source.tail(first).columns(query("step_rows"), (attempt, first, last)))
    recorded = sum(item.progress.recorded_steps for item in positions.values())
    ((local_world_size,),) = source.rows(query("local_world_size"), (attempt,))
    found = _snapshot(Tail(attempt, first, rows, positions), _attempts(marks), recorded, dropped)
    return replace(found, local_world_size=local_world_size)


def _snapshot(
    tail: Tail,
    attempts: int,
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
        first_step=tail.first_step,
    )
