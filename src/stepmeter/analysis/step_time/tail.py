"""The live profile: the end of a run, at a cost that does not grow with the run.

The store's watermarks say how far each rank has come without a step being read. The first reading takes the
segments that reach into the tail; a later one takes only those that came since, and joins them to the rows that it
had.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepmeter.analysis.queries import query
from stepmeter.analysis.step_time.columns import StepTimeColumns, from_store
from stepmeter.analysis.step_time.fresh import read_fresh
from stepmeter.analysis.step_time.silence import silent_ranks
from stepmeter.analysis.step_time.source import RankIdentity, RankProgress

if TYPE_CHECKING:
    from stepmeter.store.snapshot import Snapshot
    from stepmeter.store.watermark import RankWatermark

LAST_STEP = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RankPosition:
    """How far a rank has come, and what its latest step knew of the run.

    Attributes:
        progress: How far it has come.
        identity: Where it runs.
        strategy: How ranks share the work; None when not known.
    """

    progress: RankProgress
    identity: RankIdentity
    strategy: str | None


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a run.

    Attributes:
        attempt: The attempt that it is of.
        first_step: The step from which on rows are there.
        rows: Its rows.
        positions: How far each rank has come.
    """

    attempt: int
    first_step: int
    rows: StepTimeColumns
    positions: Mapping[int, RankPosition]


def positions_of(marks: Iterable[RankWatermark], attempt: int) -> dict[int, RankPosition]:
    """How far each rank of an attempt has come, by the store's own count."""
    return {
        mark.rank: RankPosition(
            RankProgress(mark.recorded_steps, mark.first_step, mark.last_step, mark.first_start_ns, mark.last_end_ns),
            RankIdentity(mark.rank, mark.local_rank, mark.node_rank, mark.host, mark.world_size, mark.hw_id),
            mark.strategy,
        )
        for mark in marks
        if mark.attempt == attempt
    }


def last_shared_step(positions: Mapping[int, RankPosition]) -> int:
    """The last step that all ranks completed which are not silent.

    Args:
        positions: How far each rank has come, one rank or more.

    Returns:
        The step.
    """
    silent = {rank.global_rank for rank in silent_ranks({rank: item.progress for rank, item in positions.items()})}
    return min(item.progress.last_step for rank, item in positions.items() if rank not in silent)


def read_tail(
    source: Snapshot, attempt: int, known: Mapping[int, RankPosition], lookback_steps: int, before: Tail | None
) -> Tail:
    """Read the end of a run: with one statement, or what came since without one.

    Args:
        source: One snapshot of the store, without the segments that `before` is of.
        attempt: The attempt to read.
        known: How far each of its ranks has come at least.
        lookback_steps: How many steps to keep.
        before: What was read before; None, or a tail that begins too late, when all of it has to be read.

    Returns:
        The tail.
    """
    first = last_shared_step(known) - lookback_steps + 1
    recent = source.tail(first)
    found = None if before is None else read_fresh(recent, attempt, first)
    rows = from_store(found or recent.columns(query("step_rows"), (attempt, first, LAST_STEP)))
    if before is not None:
        rows = before.rows.and_later(rows, first)
    return Tail(attempt, first, rows, _caught_up(known, rows))


def _caught_up(known: Mapping[int, RankPosition], rows: StepTimeColumns) -> dict[int, RankPosition]:
    """Watermarks are older than rows by a moment: count what they do not know of yet."""
    positions = dict(known)
    for rank, of_rank in rows.of_ranks().items():
        steps = rows.step[of_rank]
        if rank in known and steps[-1] > known[rank].progress.last_step:
            progress = known[rank].progress
            newer = replace(
                progress,
                recorded_steps=progress.recorded_steps + int((steps > progress.last_step).sum()),
                last_step=int(steps[-1]),
                last_end_ns=max(progress.last_end_ns, int(rows.source_id[of_rank].max())),
            )
            positions[rank] = replace(known[rank], progress=newer)
    return positions
