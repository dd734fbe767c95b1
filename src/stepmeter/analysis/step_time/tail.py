"""The live profile: the end of a run, at a cost that does not grow with the run.

A first reading asks how far each rank has come; every later one asks only for what ended since the oldest row of the
reading before, and carries ranks over that have nothing new.
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
    from collections.abc import Mapping

    from stepmeter.store.reader import Snapshot

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
        positions: How far each rank has come, over these rows; ranks without rows as they were before.
    """

    attempt: int
    rows: StepTimeColumns
    positions: Mapping[int, RankPosition]


def last_shared_step(progress: Mapping[int, RankProgress]) -> int:
    """The last step that all ranks completed which are not silent.

    Args:
        progress: How far each rank has come, one rank or more.

    Returns:
        The step.
    """
    silent = {rank.global_rank for rank in silent_ranks(progress)}
    return min(item.last_step for rank, item in progress.items() if rank not in silent)


def read_tail(
    source: Snapshot, attempt: int, since_ns: int, known: Mapping[int, RankPosition], lookback_steps: int
) -> Tail:
    """Read the end of a run with one statement.

    Args:
        source: One snapshot of the store.
        attempt: The latest attempt known.
        since_ns: Least end of a step to read, Unix time in ns.
        known: How far each rank of the attempt had come when it was last looked at.
        lookback_steps: How many steps to keep.

    Returns:
        The tail; that of a newer attempt, when there is one.
    """
    first = last_shared_step({rank: item.progress for rank, item in known.items()}) - lookback_steps + 1
    found = source.columns(query("step_tail"), (attempt, since_ns, first))
    latest = max(attempt, int(found["attempt"].max())) if len(found["attempt"]) else attempt
    found = _those(found, found["attempt"] == latest)
    positions = {**(known if latest == attempt else {}), **_positions(found)}
    last = last_shared_step({rank: item.progress for rank, item in positions.items()})
    return Tail(latest, from_store(_those(found, found["step"] > last - lookback_steps)), positions)


def _those(found: Found, kept: npt.NDArray[np.bool_]) -> Found:
    return {name: values[kept] for name, values in found.items()}


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
