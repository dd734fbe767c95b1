"""From tuples to Arrow columns of the types that the schema declares."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from stepmeter.store.model import Same
from stepmeter.store.pandas import settle_pandas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepmeter.store.model import Block
    from stepmeter.store.schema import Table

_TYPES = {
    "BIGINT": pa.int64(),
    "UBIGINT": pa.uint64(),
    "INTEGER": pa.int32(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.string(),
    "BOOLEAN": pa.bool_(),
    "UBIGINT[]": pa.list_(pa.uint64()),
    "DOUBLE[]": pa.list_(pa.float64()),
}


@cache
def arrow_schema(table: Table) -> Any:
    """The Arrow schema of a table.

    Args:
        table: The table.

    Returns:
        A `pyarrow.Schema` with the columns in order.
    """
    return pa.schema([(column.name, _TYPES[column.type]) for column in table.columns])


def to_arrow(table: Table, rows: Sequence[tuple[Any, ...]], blocks: Sequence[Block] = ()) -> Any:
    """Turn rows into an Arrow table.

    Args:
        table: The table whose columns they have.
        rows: Tuples in the order of the columns.
        blocks: More rows, column by column.

    Returns:
        A `pyarrow.Table`.

    Raises:
        pyarrow.ArrowInvalid: A value does not fit its column.
    """
    settle_pandas()
    schema = arrow_schema(table)
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    singly = pa.Table.from_arrays(
        [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )
    return pa.concat_tables([singly, *(_of_block(block, schema) for block in blocks)]) if blocks else singly


def _of_block(block: Block, schema: Any) -> Any:
    def column(values: Any, kind: Any) -> Any:
        if not isinstance(values, Same):
            return pa.array(values, kind)
        if values.value is None:
            return pa.nulls(block.length, kind)
        return pa.repeat(pa.scalar(values.value, kind), block.length)

    columns = [column(values, field.type) for values, field in zip(block.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)
