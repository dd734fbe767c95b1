"""What a table is: columns with type, unit and meaning, the key of a row, and the order in which rows lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its name, with the unit of a number in it.
        type: Its DuckDB type.
        comment: What it holds, with the unit.
        since: First store version that has it.
    """

    name: str
    type: str
    comment: str
    since: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a run.

    Attributes:
        name: Its name in schema `raw`.
        comment: What one row is.
        columns: Its columns in order.
        key: Columns that tell rows apart; a row whose key is there already is the same one, sent again. Empty for
            tables whose rows have no identity of their own.
        order: Integer column by which compacted rows lie, and whose range their file's name says; None for tables
            that are read whole.
        prefer: Of rows with one key that arrived together the first by these columns stays.
        since: First store version that has it.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    order: str | None = None
    prefer: tuple[str, ...] = ()
    since: int = 1

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)


@dataclass(frozen=True, slots=True)
class Same:
    """A column of which every row has the same value.

    Attributes:
        value: The value; None for null.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Block:
    """Rows column by column.

    Attributes:
        length: Number of rows, 1 or more.
        columns: In the order of the table's columns each a `Same`, or a numpy array of so many integers or ASCII texts.
    """

    length: int
    columns: tuple[Any, ...]

    def row(self, number: int) -> tuple[Any, ...]:
        """Take one row out.

        Args:
            number: Which, from 0.

        Returns:
            A tuple in the order of the columns.
        """
        return tuple(c.value if isinstance(c, Same) else c[number].item() for c in self.columns)
