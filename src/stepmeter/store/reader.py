"""How a run is read: open it, take one snapshot, and ask everything of that.

A live view reads the tail only:

    snapshot = reader.snapshot()
    marks = snapshot.watermark()                    # one RankWatermark for each attempt and rank; no step is read
    last = min(mark.last_step for mark in marks if mark.attempt == latest)
    rows = snapshot.tail(last - 300).rows(sql)      # the same moment; segments with older steps only are left out
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from stepmeter.errors import RunNotFoundError, StoreError
from stepmeter.store import watermark
from stepmeter.store.catalog import public_view
from stepmeter.store.connection import Spill, connect
from stepmeter.store.files import current, list_segments
from stepmeter.store.find import find_run
from stepmeter.store.identity import RUN_FILE, RunIdentity, read_identity, require_known_version
from stepmeter.store.listing import Cursor, Listing
from stepmeter.store.needed import EVERYTHING, needed
from stepmeter.store.query import Answer, one_line, read_answer, require_query
from stepmeter.store.recent import read_recent
from stepmeter.store.watermark import RankWatermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    import numpy as np
    from typing_extensions import Self

    from stepmeter.store.files import Segment
    from stepmeter.store.model import Table
    from stepmeter.store.needed import Needed

__all__ = ["Cursor", "RankWatermark", "RunReader", "Snapshot", "Spill", "find_run", "open_run"]

T = TypeVar("T")


def open_run(path: Path, spill: Spill | None = None) -> RunReader:
    """Open a run for reading; it may be written at the same time.

    Args:
        path: The run directory.
        spill: How much memory a statement may take, and where it goes beyond; DuckDB's own choice when None.

    Returns:
        A reader, which is a context manager.

    Raises:
        RunNotFoundError: There is no run at this path.
        StoreError: Its identity can't be read.
        StoreVersionError: A newer stepmeter wrote it.
    """
    try:
        identity = read_identity(path)
    except (FileNotFoundError, NotADirectoryError):
        raise RunNotFoundError(f'"{path}" is not a run: it has no {RUN_FILE}; name a directory that has one') from None
    except (ValueError, OSError) as error:
        raise StoreError(f"{path / RUN_FILE}: not readable ({error}); restore it or collect the run again") from None
    require_known_version(path, identity)
    return RunReader(path, identity, spill)


class RunReader:
    """A run that is open for reading; may be used by several threads.

    Attributes:
        path: The run directory.
        run_id: Identity of the run.
        run_name: Name for people, or None.
    """

    def __init__(self, path: Path, identity: RunIdentity, spill: Spill | None = None) -> None:
        self.path = path
        self._spill = spill
        self.run_id = identity.run_id
        self.run_name = identity.run_name
        self._lock = threading.Lock()
        self._sealed = identity.sealed_ns is not None
        self._connection = connect(path, sealed=self._sealed, spill=spill)
        self._installed: dict[str, tuple[RunIdentity, tuple[Segment, ...]]] = {}
        self._views: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the run; a second time does nothing."""
        self._connection.close()

    def snapshot(self) -> Snapshot:
        """List the run's segments, once.

        Returns:
            A snapshot, whose statements all see exactly these segments.

        Raises:
            StoreError: The run has lost its data.
        """
        return Snapshot(self, self._list())

    def _list(self) -> Listing:
        """The watermarks are read before the segments, so that they never promise a step that is not there."""
        marks = watermark.read_watermarks(self.path)
        try:
            identity = read_identity(self.path)
            if identity.sealed_ns is None:
                segments = {table: current(found) for table, found in list_segments(self.path).items()}
                # a run that an older version began has steps that no watermark counts
                return Listing(self.path, identity, segments, None if identity.migrated_from else marks)
        except FileNotFoundError:
            identity = self._sealed_meanwhile()
        return Listing(self.path, identity, {})

    def _sealed_meanwhile(self) -> RunIdentity:
        try:
            identity = read_identity(self.path)
        except FileNotFoundError:
            raise RunNotFoundError(f"{self.path}: the run is gone") from None
        if identity.sealed_ns is None:
            raise StoreError(f"{self.path}: no directory data in it; the run is not whole, collect it again")
        return identity

    def _run(self, listing: Listing, sql: str, ask: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        with self._lock:
            if listing.segments:
                self._install(listing, needed(sql))
                try:
                    return ask(self._connection)
                except duckdb.CatalogException:  # a name that stands nowhere in the statement, or nowhere at all
                    self._install(listing, EVERYTHING)
            elif not self._sealed:
                self._connection.close()
                self._connection, self._sealed = connect(self.path, sealed=True, spill=self._spill), True
            return ask(self._connection)

    def _install(self, listing: Listing, wanted: Needed) -> None:
        """Point what a statement names at the files of a snapshot; only what differs is defined anew."""
        for table in wanted.tables:
            state = (listing.identity, listing.segments[table])
            if self._installed.get(table.name) != state:
                self._connection.execute(listing.view(table))
                self._installed[table.name] = state
        for name in wanted.views:
            if name not in self._views:
                self._connection.execute(public_view(name))
                self._views.add(name)


class Snapshot:
    """A run as one listing of its directory found it.

    The names are those of `run.duckdb`: tables `raw.steps`, `raw.spans` … and the public views. A segment
    that vanished since (it was compacted, or its run sealed) makes the snapshot list the directory once more.

    Attributes:
        cursor: Hashable; equal to another snapshot's when both see the same data.
    """

    def __init__(
        self, reader: RunReader, listing: Listing, first_step: int | None = None, after: Cursor | None = None
    ) -> None:
        self._reader = reader
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
        return Snapshot(self._reader, self._listing, first_step, self._after)

    def since(self, cursor: Cursor) -> Snapshot:
        """The same moment without segments that another snapshot of the run had already.

        Args:
            cursor: The other snapshot's cursor.

        Returns:
            A snapshot; steps that came later are all there, earlier ones may be. Other tables are whole in it, and a
            sealed run is.
        """
        return Snapshot(self._reader, self._listing, self._first_step, cursor)

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
            raise StoreError(f"{self._reader.path}: {one_line(error)}") from error

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
        reader = self._reader
        try:
            try:
                return reader._run(self._listing, sql, ask)  # noqa: SLF001 - reader and snapshot are one thing
            except duckdb.IOException:
                listing = reader._list()  # noqa: SLF001 - as above
                self._listing = listing.narrowed(self._first_step, self._after)
                return reader._run(self._listing, sql, ask)  # noqa: SLF001 - as above
        except duckdb.Error as error:
            raise StoreError(f"{reader.path}: {one_line(error)}") from error
