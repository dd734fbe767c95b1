"""What is asked of a run as it was at one moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from stepmeter.errors import StoreError
from stepmeter.store import watermark
from stepmeter.store.query import Answer, one_line, read_answer, require_query
from stepmeter.store.recent import read_recent
from stepmeter.store.watermark import RankWatermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

    from stepmeter.store.listing import Cursor, Listing
    from stepmeter.store.model import Table
    from stepmeter.store.opened import OpenRun

T = TypeVar("T")


class Snapshot:
    """A run as one listing of its directory found it.

    The names are those of `run.duckdb`: tables `raw.steps`, `raw.spans` … and the public views. A segment
    that vanished since (it was compacted, or its run sealed) makes the snapshot list the directory once more.

    Attributes:
        cursor: Hashable; equal to another snapshot's when both see the same data.
    """

    def __init__(
        self, run: OpenRun, listing: Listing, first_step: int | None = None, after: Cursor | None = None
    ) -> None:
        self._run = run
        self._first_step = first_step
        self._after = after
        self._listing = listing.narrowed(first_step, after)

    @property
    def cursor(self) -> Cursor:
        """The newest segment of each table and collector."""
        return self._listing.cursor

    def watermark(self) -> tuple[RankWatermark, ...]:
        """How far each rank of each attempt has come, without reading steps where collectors keep count.

        Returns:
            In the order of attempt and rank. At least these steps are in the snapshot; it may hold newer ones.

        Raises:
            StoreError: The data can't be read.
        """
        if self._listing.marks is not None:
            return self._listing.marks
        return tuple(RankWatermark(*row) for row in self.rows(watermark.QUERY))

    def tail(self, first_step: int) -> Snapshot:
        """The same moment without segments that hold only older steps.

        Args:
            first_step: Steps from this one on are all there; older ones may or may not be.

        Returns:
            A snapshot; other tables are whole in it.
        """
        return Snapshot(self._run, self._listing, first_step, self._after)

    def since(self, cursor: Cursor) -> Snapshot:
        """The same moment without segments that another snapshot of the run had already.

        Args:
            cursor: The other snapshot's cursor.

        Returns:
            A snapshot; steps that came later are all there, earlier ones may be. Other tables are whole in it, and a
            sealed run is.
        """
        return Snapshot(self._run, self._listing, self._first_step, cursor)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Ask for rows.

        Args:
            sql: One statement.
            parameters: Values for its `?`.

        Returns:
            The rows as tuples; null is None.

        Raises:
            StoreError: The statement is wrong or the data can't be read.
        """
        return self._ask(sql, lambda connection: connection.execute(sql, list(parameters)).fetchall())

    def stream(self, sql: str, parameters: Sequence[object] = (), size: int = 4096) -> Iterator[list[tuple[Any, ...]]]:
        """Ask for rows bit by bit; nothing else may be asked of the reader until the last.

        Args:
            sql: One statement.
            parameters: Values for its `?`.
            size: Rows at a time.

        Yields:
            At most `size` rows, in order.

        Raises:
            StoreError: The statement is wrong or the data can't be read.
        """
        result = self._ask(sql, lambda connection: connection.execute(sql, list(parameters)))
        try:
            while rows := result.fetchmany(size):
                yield rows
        except duckdb.Error as error:
            raise StoreError(f"{self._run.path}: {one_line(error)}") from error

    def columns(self, sql: str, parameters: Sequence[object] = ()) -> dict[str, np.ndarray[Any, Any]]:
        """Ask for whole columns.

        Args:
            sql: One statement.
            parameters: Values for its `?`.

        Returns:
            For each column an array, in the order of the rows. A column with nulls is a
            `numpy.ma.MaskedArray` that masks them (its type stays that of the column: integers stay
            integers), one without is a plain array.

        Raises:
            StoreError: The statement is wrong or the data can't be read.
        """
        return self._ask(sql, lambda connection: connection.execute(sql, list(parameters)).fetchnumpy())

    def recent(self, table: Table, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]] | None:
        """Read columns of a table that has only a few segments in this snapshot, at a tenth of a statement's cost.

        Args:
            table: The table.
            names: Its columns.

        Returns:
            For each column an array, masked where null, in no order and with what a collector got twice. None where
            a statement is the way.
        """
        segments = self._listing.segments.get(table, ())
        return read_recent([segment.path for segment in segments], names)

    def answer(self, sql: str) -> Answer:
        """Run a query that a person wrote, and nothing that would write.

        Args:
            sql: One SELECT, DESCRIBE, SHOW, SUMMARIZE or EXPLAIN statement.

        Returns:
            Columns and rows.

        Raises:
            StoreError: The query is wrong, is more than one, or would write.
        """
        require_query(sql)
        return self._ask(sql, lambda connection: read_answer(connection.execute(sql)))

    def _ask(self, sql: str, ask: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        try:
            try:
                return self._run.ask(self._listing, sql, ask)
            except duckdb.IOException:
                self._listing = self._run.listing().narrowed(self._first_step, self._after)
                return self._run.ask(self._listing, sql, ask)
        except duckdb.Error as error:
            raise StoreError(f"{self._run.path}: {one_line(error)}") from error
