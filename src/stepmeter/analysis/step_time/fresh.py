"""Steps of the segments that came since the last look, as `step_rows` gives them, without a statement."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stepmeter.analysis.step_time.columns import CLOCKS
from stepmeter.analysis.step_time.source import SOURCE_METRICS
from stepmeter.conventions.attributes import BACKWARD_WAIT
from stepmeter.store.schema import STEPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from stepmeter.store.snapshot import Snapshot

_TIMES: Final = tuple(f"{metric}_{clock}_ns" for metric in SOURCE_METRICS for clock in CLOCKS)
_NAMES: Final = ("attempt", "rank", "step", "end_ns", "warmup", "attributes", *_TIMES)


def read_fresh(source: Snapshot, attempt: int, first_step: int) -> Mapping[str, npt.NDArray[Any]] | None:
    """Read the steps of a snapshot that has only a few segments of them.

    Args:
        source: The snapshot.
        attempt: The attempt to read.
        first_step: The first step to read.

    Returns:
        The columns of the query `step_rows`, in no order; None where the query is the way, which also decides between
        two rows of one step.
    """
    found = source.recent(STEPS, _NAMES)
    if found is None:
        return None
    wanted = np.ma.filled((found["attempt"] == attempt) & (found["step"] >= first_step), fill_value=False)
    kept = {name: values[wanted] for name, values in found.items()}
    if _twice(kept["rank"], kept["step"]):
        return None
    return {
        "source_id": kept["end_ns"],
        "rank": kept["rank"],
        "step": kept["step"],
        "warmup": np.ma.filled(kept["warmup"], fill_value=False).astype(np.bool_),
        **{name: kept[name] for name in _TIMES},
        "wait_ns": _waits(kept["attributes"]),
    }


def _twice(rank: npt.NDArray[Any], step: npt.NDArray[Any]) -> bool:
    order = np.lexsort((step, rank))
    return bool(np.any((np.diff(rank[order]) == 0) & (np.diff(step[order]) == 0)))


def _waits(attributes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """How long backward waited for other ranks, which only a few steps say."""
    found = [
        json.loads(text).get(BACKWARD_WAIT.key) if BACKWARD_WAIT.key in text else None
        for text in np.ma.filled(attributes, "")
    ]
    missing = [value is None for value in found]
    return np.ma.MaskedArray(np.array([value or 0 for value in found], dtype=np.int64), mask=missing)
