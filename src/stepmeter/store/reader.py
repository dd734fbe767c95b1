"""How a run is read: find it, open it, take one snapshot, and ask everything of that."""

from __future__ import annotations

import glob
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb

from stepmeter.conventions import environment
from stepmeter.errors import RunNotFoundError, StoreError, StoreVersionError
from stepmeter.store.catalog import PUBLIC_VIEWS, literal, public_view, raw_view
from stepmeter.store.query import Answer, one_line, read_answer, require_query
from stepmeter.store.schema import STORE_VERSION, TABLES
from stepmeter.store.segments import CATALOG_FILE, RUN_FILE, list_runs, read_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    import numpy as np
    from typing_extensions import Self

Cursor = tuple[tuple[str, str, str], ...]
"""The newest segment of each table and collector; equal cursors mean equal data."""

_SHOWN_RUNS: Final = 8


def find_run(reference: str | Path, directory: Path | None = None) -> Path:
    """Find a run.

    Args:
        reference: A run directory, its `run.duckdb`, or a run's name or id.
        directory: Where to look a name or id up; `$STEPMETER_DIR`, else `./stepmeter-runs`, when None.

    Returns:
        The run directory.

    Raises:
        RunNotFoundError: There is no such run; the message says which there are.
    """
    path = Path(reference)
    if path.name in {CATALOG_FILE, RUN_FILE} and path.is_file():
        path = path.parent
    if (path / RUN_FILE).is_file():
        return path
    runs_dir = directory or Path(os.environ.get(environment.DIR) or environment.DEFAULT_DIR)
    runs = list_runs(runs_dir) if runs_dir.is_dir() else []
    for run, identity in runs:
        if str(reference) in {run.name, identity.run_id}:
            return run
    raise RunNotFoundError(_not_found(str(reference), runs_dir, [run.name for run, _ in runs]))


def open_run(path: Path) -> RunReader:
    """Open a run for reading; it may be written at the same time.

    Args:
        path: The run directory.

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
    if identity.store_version > STORE_VERSION:
        raise StoreVersionError(
            f"{path}: store version {identity.store_version}, this stepmeter reads up to {STORE_VERSION}; "
            "upgrade it: pip install --upgrade stepmeter"
        )
    return RunReader(path, identity.run_id, identity.run_name)


class RunReader:
    """A run that is open for reading.

    Attributes:
        path: The run directory.
        run_id: Identity of the run.
        run_name: Name for people, or None.
    """

    def __init__(self, path: Path, run_id: str, run_name: str | None) -> None:
        self.path = path
        self.run_id = run_id
        self.run_name = run_name
        self._lock = threading.Lock()
        self._connection = _connect(path)
        self._installed: dict[str, tuple[str, ...]] = {}

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
        """
        return Snapshot(self, _list_segments(self.path))

    def _run(self, files: dict[str, tuple[str, ...]], ask: Callable[[duckdb.DuckDBPyConnection], Any]) -> Any:
        with self._lock:
            self._install(files)
            return ask(self._connection)

    def _install(self, files: dict[str, tuple[str, ...]]) -> None:
        """Point `raw.*` at the files of a snapshot; only what differs is defined anew."""
        first = not self._installed
        for table in TABLES:
            wanted = files[table.name]
            if self._installed.get(table.name) != wanted:
                self._connection.execute(raw_view(table, [glob.escape(file) for file in wanted]))
                self._installed[table.name] = wanted
        if first:
            for name in PUBLIC_VIEWS:
                self._connection.execute(public_view(name))


class Snapshot:
    """A run as one listing of its directory found it.

    The names are those of `run.duckdb`: tables `raw.steps`, `raw.spans` … and the public views. A segment
    that vanished since (it was compacted, or its run pruned) makes the snapshot list the directory once more.

    Attributes:
        cursor: Hashable; equal to another snapshot's when both see the same data.
    """

    def __init__(self, reader: RunReader, files: dict[str, tuple[str, ...]]) -> None:
        self._reader = reader
        self._files = files

    @property
    def cursor(self) -> Cursor:
        """The newest segment of each table and collector."""
        newest = {
            (table, Path(file).parent.name.removeprefix("c=")): Path(file).stem
            for table, files in self._files.items()
            for file in files
        }
        return tuple((table, collector, number) for (table, collector), number in newest.items())

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
        rows: list[tuple[Any, ...]] = self._ask(lambda connection: connection.execute(sql, list(parameters)).fetchall())
        return rows

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
        found: dict[str, np.ndarray[Any, Any]] = self._ask(
            lambda connection: connection.execute(sql, list(parameters)).fetchnumpy()
        )
        return found

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
        answer: Answer = self._ask(lambda connection: read_answer(connection.execute(sql)))
        return answer

    def _ask(self, ask: Callable[[duckdb.DuckDBPyConnection], Any]) -> Any:
        try:
            try:
                return self._reader._run(self._files, ask)  # noqa: SLF001 - reader and snapshot are one thing
            except duckdb.IOException:
                self._files = _list_segments(self._reader.path)
                return self._reader._run(self._files, ask)  # noqa: SLF001 - as above
        except duckdb.Error as error:
            raise StoreError(f"{self._reader.path}: {one_line(error)}") from error


def _connect(path: Path) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"python_enable_replacements": "false"})
    plain = f"{path.absolute()}/"
    # a path is compared as it stands in the statement, where its glob characters are escaped
    connection.execute(f"SET allowed_directories = [{literal(plain)}, {literal(glob.escape(plain))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    connection.execute("CREATE SCHEMA raw")
    return connection


def _list_segments(run: Path) -> dict[str, tuple[str, ...]]:
    data = run.absolute() / "data"
    if not data.is_dir():
        raise StoreError(f"{run}: no directory data in it; the run is not whole, collect it again")
    return {table.name: tuple(_segments(data / table.name)) for table in TABLES}


def _segments(table: Path) -> list[str]:
    found: list[str] = []
    for tier in _entries(table):
        for collector in _entries(tier):
            found.extend(name for name in _entries(collector) if name.endswith(".parquet"))
    return found


def _entries(directory: str | Path) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        return sorted(entry.path for entry in entries)
    return []


def _not_found(reference: str, directory: Path, names: list[str]) -> str:
    if not names:
        there = f"{directory} has no runs; start one: stepmeter run -- CMD"
    else:
        rest = f" and {len(names) - _SHOWN_RUNS} more" if len(names) > _SHOWN_RUNS else ""
        there = f"{directory} has {', '.join(names[:_SHOWN_RUNS])}{rest}"
    return f'no run "{reference}"; {there}'
