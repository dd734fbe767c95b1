"""Columns of a few new segments without SQL: planning a statement over a run's views costs ten times the reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEW: Final = 16
"""More segments than this are read by DuckDB, on all cores."""


def read_recent(paths: Sequence[str], names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]] | None:
    """Read some columns of a few segments.

    Args:
        paths: The segments.
        names: The columns.

    Returns:
        For each column an array in the order of the segments, a `numpy.ma.MaskedArray` where it has nulls. None where
        this is not the way: there are no segments or too many, one is gone, or one lacks a column.
    """
    if not 0 < len(paths) <= _FEW:
        return None
    import pyarrow as pa
    from pyarrow import parquet

    try:
        pieces = [parquet.ParquetFile(path).read(list(names), use_threads=False) for path in paths]
    except (OSError, pa.ArrowInvalid):
        return None
    if any(len(piece.column_names) != len(names) for piece in pieces):
        return None
    found = pa.concat_tables(pieces)
    return {name: _array(found.column(name)) for name in names}


def _array(column: Any) -> np.ndarray[Any, Any]:
    import pyarrow as pa

    if not column.null_count:
        return column.to_numpy()  # type: ignore[no-any-return] # pyarrow has no types
    filling = "" if pa.types.is_string(column.type) else pa.scalar(0, pa.int64()).cast(column.type)
    return np.ma.MaskedArray(column.fill_null(filling).to_numpy(), mask=column.is_null().to_numpy())
