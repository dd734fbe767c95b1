"""Step time out of the store: two selection profiles, one shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.queries import query
from stepmeter.analysis.step_time.columns import StepTimeColumns, from_store
from stepmeter.analysis.step_time.model import LIVE_WINDOW_STEPS, SUMMARY_WINDOW_STEPS, Profile
from stepmeter.analysis.step_time.source import StepTimeRepositorySnapshot, StepTimeSourceCursor
from stepmeter.analysis.step_time.tail import Tail, last_shared_step, positions_of, read_tail
from stepmeter.store.reader import RankWatermark

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from stepmeter.store.reader import Snapshot

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
    if previous is not None and position == previous.store_cursor:
        return previous
    lookback_steps = round(window_size * LOOKBACK_FACTOR[profile])
    read = _live if profile == "live" else _summary
    found = read(source, lookback_steps, position)
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


def _live(source: Snapshot, lookback_steps: int, position: Hashable) -> StepTimeRepositorySnapshot:
    marks = source.watermark()
    if not marks:
        return StepTimeRepositorySnapshot(store_cursor=position)
    attempt = marks[-1].attempt
    tail = read_tail(source, attempt, positions_of(marks, attempt), lookback_steps)
    return _snapshot(tail, _attempts(marks), position)


def _attempts(marks: Sequence[RankWatermark]) -> int:
    return len({mark.attempt for mark in marks})


def _summary(source: Snapshot, lookback_steps: int, position: Hashable) -> StepTimeRepositorySnapshot:
    dropped = dict(source.rows(query("dropped")))
    marks = [RankWatermark(*row) for row in source.rows(query("step_progress"))]
    if not marks:
        return StepTimeRepositorySnapshot(store_cursor=position, dropped=dropped)
    attempt = marks[-1].attempt
    positions = positions_of(marks, attempt)
    last = last_shared_step(positions)
    first = last - lookback_steps + 1
    rows = from_store(source.tail(first).columns(query("step_rows"), (attempt, first, last)))
    recorded = sum(item.progress.recorded_steps for item in positions.values())
    return _snapshot(Tail(attempt, rows, positions), _attempts(marks), position, recorded, dropped)


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
