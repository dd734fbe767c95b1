"""Source rows as columns: a million rows are twenty arrays and no objects until somebody looks at one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.step_time.model import Clock
from stepmeter.analysis.step_time.source import BACKWARD_WAIT, SOURCE_METRICS, StepTimeSourceRow

Milliseconds = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

CLOCKS: tuple[Clock, ...] = ("cpu", "gpu")
WAIT: tuple[str, Clock] = (BACKWARD_WAIT, "cpu")
"""Where `times_ms` has it, whichever clock DDP used."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTimeColumns(Sequence[StepTimeSourceRow]):
    """Rows in the order of rank and step, each rank and step once; reads as a sequence of rows.

    Attributes:
        source_id: Position of each row, shape (rows,).
        global_rank: Rank of each row, shape (rows,).
        step: Step of each row, shape (rows,).
        warmup: Whether each step was warm-up, shape (rows,).
        times_ms: Milliseconds by source metric and clock, and of `WAIT`, shape (rows,); NaN where not measured.
    """

    source_id: Integers
    global_rank: Integers
    step: Integers
    warmup: npt.NDArray[np.bool_]
    times_ms: Mapping[tuple[str, Clock], Milliseconds]

    def __len__(self) -> int:
        return len(self.step)

    @overload
    def __getitem__(self, index: int) -> StepTimeSourceRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[StepTimeSourceRow]: ...

    def __getitem__(self, index: int | slice) -> StepTimeSourceRow | list[StepTimeSourceRow]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return StepTimeSourceRow(
            source_id=int(self.source_id[index]),
            global_rank=int(self.global_rank[index]),
            step=int(self.step[index]),
            metrics={
                metric: pair
                for metric in (*SOURCE_METRICS, BACKWARD_WAIT)
                if (pair := (self._measured(metric, "cpu", index), self._measured(metric, "gpu", index)))
                != (None, None)
            },
            warmup=bool(self.warmup[index]),
        )

    def of_ranks(self) -> dict[int, slice]:
        """Where the rows of each rank lie, by rank ascending."""
        ranks, starts = np.unique(self.global_rank, return_index=True)
        edges = [*starts.tolist(), len(self)]
        return {rank: slice(edges[number], edges[number + 1]) for number, rank in enumerate(ranks.tolist())}

    def and_later(self, later: StepTimeColumns, first_step: int) -> StepTimeColumns:
        """These rows and later ones, without steps before a first one; where both have a step, the later row."""
        joined = {key: np.concatenate([self.times_ms[key], later.times_ms[key]]) for key in self.times_ms}
        names = ("source_id", "global_rank", "step", "warmup")
        heads = [np.concatenate([getattr(self, name), getattr(later, name)]) for name in names]
        recent = heads[2] >= first_step
        source_id, rank, step, warmup = (values[recent] for values in heads)
        return _ordered(source_id, rank, step, warmup, {key: values[recent] for key, values in joined.items()})

    def same_as(self, other: object) -> bool:
        """Whether another sequence of rows holds the same values."""
        return (
            isinstance(other, StepTimeColumns)
            and len(self) == len(other)
            and all(
                np.array_equal(getattr(self, name), getattr(other, name))
                for name in ("source_id", "global_rank", "step", "warmup")
            )
            and all(np.array_equal(self.times_ms[key], other.times_ms[key], equal_nan=True) for key in self.times_ms)
        )

    def _measured(self, metric: str, clock: Clock, index: int) -> float | None:
        values = self.times_ms.get((metric, clock))
        value = np.nan if values is None else float(values[index])
        return None if np.isnan(value) else value


def from_store(found: Mapping[str, npt.NDArray[Any]]) -> StepTimeColumns:
    """Convert columns of the store, whose times are integer nanoseconds.

    Args:
        found: Columns `source_id`, `rank`, `step`, `warmup`, `<metric>_<clock>_ns` and `wait_ns`, masked where
            null.

    Returns:
        The columns, ordered; of two rows for one rank and step the one of the larger source id.
    """
    return _ordered(
        found["source_id"].astype(np.int64),
        found["rank"].astype(np.int64),
        found["step"].astype(np.int64),
        np.asarray(found["warmup"], dtype=np.bool_),
        {
            **{(metric, clock): _in_ms(found[f"{metric}_{clock}_ns"]) for metric in SOURCE_METRICS for clock in CLOCKS},
            WAIT: _in_ms(found["wait_ns"]),
        },
    )


def as_columns(rows: Iterable[StepTimeSourceRow]) -> StepTimeColumns:
    """Convert any rows; columns are given back as they are."""
    if isinstance(rows, StepTimeColumns):
        return rows
    listed = list(rows)
    pairs = {
        metric: np.array([row.metrics.get(metric, (None, None)) for row in listed], dtype=np.float64).reshape(-1, 2)
        for metric in (*SOURCE_METRICS, BACKWARD_WAIT)
    }
    wait = pairs.pop(BACKWARD_WAIT)[:, 0]
    times = {(metric, clock): both[:, side] for metric, both in pairs.items() for side, clock in enumerate(CLOCKS)}
    return _ordered(
        np.array([row.source_id for row in listed], dtype=np.int64),
        np.array([row.global_rank for row in listed], dtype=np.int64),
        np.array([row.step for row in listed], dtype=np.int64),
        np.array([row.warmup for row in listed], dtype=np.bool_),
        {**times, WAIT: wait},
    )


def _in_ms(column: npt.NDArray[Any]) -> Milliseconds:
    return np.ma.filled(column.astype(np.float64), np.nan) / 1e6


def _ordered(
    source_id: Integers,
    rank: Integers,
    step: Integers,
    warmup: npt.NDArray[np.bool_],
    times_ms: Mapping[tuple[str, Clock], Milliseconds],
) -> StepTimeColumns:
    order = np.lexsort((source_id, step, rank))
    last = np.ones(len(order), dtype=np.bool_)
    last[:-1] = (np.diff(rank[order]) != 0) | (np.diff(step[order]) != 0)
    kept = order[last]
    return StepTimeColumns(
        source_id[kept],
        rank[kept],
        step[kept],
        warmup[kept],
        {key: values[kept] for key, values in times_ms.items()},
    )
