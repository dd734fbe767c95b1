"""A run that is open: one connection, and over which segments its names are defined in it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

import duckdb

from stepmeter.errors import RunNotFoundError, StoreError
from stepmeter.store import watermark
from stepmeter.store.catalog import public_view
from stepmeter.store.connection import connect
from stepmeter.store.files import current, list_segments
from stepmeter.store.identity import read_identity
from stepmeter.store.listing import Listing
from stepmeter.store.needed import EVERYTHING, needed
from stepmeter.store.query import one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from stepmeter.store.connection import Spill
    from stepmeter.store.files import Segment
    from stepmeter.store.identity import RunIdentity
    from stepmeter.store.needed import Needed

T = TypeVar("T")


class OpenRun:
    """What the snapshots of a run share; may be used by several threads.

    Attributes:
        path: The run directory.
    """

    def __init__(self, path: Path, *, sealed: bool, spill: Spill | None) -> None:
        self.path = path
        self._spill = spill
        self._lock = threading.Lock()
        self._sealed = sealed
        try:
            self._connection = connect(path, sealed=sealed, spill=spill)
        except duckdb.Error as error:
            raise StoreError(f"{path}: {one_line(error)}; copy the whole run again, or collect it again") from error
        self._installed: dict[str, tuple[RunIdentity, tuple[Segment, ...]]] = {}
        self._views: set[str] = set()

    def close(self) -> None:
        """Let go of the run; a second time does nothing."""
        self._connection.close()

    def listing(self) -> Listing:
        """Look at the run's directory.

        Returns:
            Its segments, and watermarks that were read before them, so that they never promise a step that is not
            there.

        Raises:
            StoreError: The run has lost its data.
        """
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

    def ask(self, listing: Listing, sql: str, ask: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        """Run a statement over the segments of a listing.

        Args:
            listing: What it sees.
            sql: The statement, for the names in it.
            ask: Runs it.

        Returns:
            What `ask` returned.

        Raises:
            duckdb.Error: The statement is wrong or the data can't be read.
        """
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
