"""The live profile: the end of a run, at a cost that does not grow with the run.

The store's watermarks say how far each rank has come without a step being read; only segments that reach into the
tail are read, with one statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.queries import query
from stepmeter.analysis.step_time.columns import StepTimeColumns, from_store
from stepmeter.analysis.step_time.silence import silent_ranks
from stepmeter.analysis.step_time.source import RankIdentity, RankProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepmeter.store.reader import RankWatermark, Snapshot

Found = dict[str, npt.NDArray[Any]]


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
        rows: Its rows, as far back as asked for.
        positions: How far each rank has come: over these rows, or over all where it has none of them.
    """

    attempt: int
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


def read_tail(source: Snapshot, attempt: int, known: Mapping[int, RankPosition], lookback_steps: int) -> Tail:
    """Read the end of a run with one statement.

    Args:
        source: One snapshot of the store.
        attempt: The attempt to read.
        known: How far each of its ranks has come at least.
        lookback_steps: How many steps to keep.

    Returns:
        The tail.
    """
    first = last_shared_step(known) - lookback_steps + 1
    found = source.tail(first).columns(query("step_tail"), (attempt, first))
    positions = {**known, **_positions(found)}
    last = last_shared_step(positions)
    recent = found["step"] > last - lookback_steps
    return Tail(attempt, from_store({name: values[recent] for name, values in found.items()}), positions)


def _positions(found: Found) -> dict[int, RankPosition]:
    positions = {}
    for rank in np.unique(found["rank"]).tolist():
        rows = np.flatnonzero(found["rank"] == rank)
        steps = found["step"][rows]
        newest = int(rows[steps.argmax()])
        positions[rank] = RankPosition(
            RankProgress(
                recorded_steps=len(np.unique(steps)),
                first_step=int(steps.min()),
                last_step=int(steps.max()),
                first_start_ns=int(found["start_ns"][rows].min()),
                last_end_ns=int(found["source_id"][rows].max()),
            ),
            RankIdentity(
                rank,
                *(_value(found[name], newest) for name in ("local_rank", "node_rank", "host", "world_size", "hw_id")),
            ),
            _value(found["strategy"], newest),
        )
    return positions


def _value(column: npt.NDArray[Any], index: int) -> Any:
    value = column[index]
    if value is np.ma.masked or value is None:
        return None
    return value.item() if isinstance(value, np.generic) else value
