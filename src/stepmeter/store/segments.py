"""A run is a directory of identity, segments and a DuckDB file of views; each is there whole or not at all.

<dir>/<name>/run.json      store_version, run_id, run_name, created_ns
<dir>/<name>/run.duckdb    views only, written once; once the run is sealed, all of its data
<dir>/<name>/data/         segments, see `files`
<dir>/<name>/watermark/    how far each collector has come, see `watermark`
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.store.durable import locked, replacing, sync
from stepmeter.store.files import COLD, DATA, LIVE, cold_name, live_name
from stepmeter.store.identity import (
    RUN_FILE,
    RunIdentity,
    list_runs,
    read_identity,
    require_known_version,
    safe_name,
    write_identity,
)
from stepmeter.store.schema import META, STORE_VERSION, TABLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepmeter.store.model import Block, Table

CATALOG_FILE: Final = "run.duckdb"
NO_COLLECTOR: Final = "none"
"""Collector of the segments that every run starts with: they have no rows, but for `meta`."""

LOCK_FILE: Final = ".lock"
WRITERS_FILE: Final = ".writers"
"""Held shared by every collector that may write to the run, and alone by whoever seals it."""


def create_run(directory: Path, run_id: str, run_name: str | None) -> Path:
    """Make the directory of a run, or find it when it is there, with first segments and `run.duckdb`.

    Args:
        directory: Where runs live; made when it does not exist.
        run_id: Identity of the run.
        run_name: Name for people; names the directory. The id does when None or empty.

    Returns:
        The run directory: `<directory>/<safe name>`, with `-2`, `-3` … when another run has the name.

    Raises:
        OSError: The directory can't be written.
        StoreVersionError: The run is there and a newer stepmeter wrote it.
    """
    run = claim_run(directory, run_id, run_name)
    complete_run(run)
    return run


def claim_run(directory: Path, run_id: str, run_name: str | None) -> Path:
    """Make the directory of a run, or find it, at once; our readers see an empty run from here on.

    Args:
        directory: Where runs live; made when it does not exist.
        run_id: Identity of the run.
        run_name: Name for people, or None.

    Returns:
        The run directory, for `complete_run`.

    Raises:
        OSError: The directory can't be written.
        StoreVersionError: The run is there and a newer stepmeter wrote it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with locked(directory / LOCK_FILE):
        for run, identity in list_runs(directory):
            if identity.run_id == run_id:
                require_known_version(run, identity)
                return run
        identity = RunIdentity(STORE_VERSION, run_id, run_name or None, time.time_ns())
        return _make(directory, identity, safe_name(run_name or run_id))


def complete_run(run: Path) -> None:
    """Write what a claimed run still lacks: first segments of each table and `run.duckdb`; migrate an older one.

    Args:
        run: The run directory.

    Raises:
        OSError: The directory can't be written.
    """
    identity = read_identity(run)
    if identity.sealed_ns is not None or (identity.store_version == STORE_VERSION and (run / CATALOG_FILE).exists()):
        return
    with locked(run / LOCK_FILE):
        identity = read_identity(run)
        if identity.store_version == STORE_VERSION and (run / CATALOG_FILE).exists():
            return
        older = identity.store_version if identity.store_version < STORE_VERSION else identity.migrated_from
        now = replace(identity, store_version=STORE_VERSION, migrated_from=older)
        for table in TABLES:
            write_cold(run, table, first_rows(table, now), NO_COLLECTOR, (0, 0, 1))
            write_segment(run, table, [], NO_COLLECTOR, 0)
        publish_catalog(run, mixed=older is not None)
        write_identity(run, now)


def write_segment(
    run: Path,
    table: Table,
    rows: Sequence[tuple[Any, ...]],
    collector: str,
    number: int,
    blocks: Sequence[Block] = (),
) -> Path:
    """Write rows as one segment, durably; readers see all of it or nothing.

    Args:
        run: The run directory.
        table: The table.
        rows: Tuples in the order of the table's columns.
        collector: Id of the collector that writes; it alone numbers its segments.
        number: Number of the segment; the same number again overwrites, so that a replay adds nothing.
        blocks: More rows, column by column.

    Returns:
        The segment's path.

    Raises:
        OSError: It can't be written.
    """
    segment = run / DATA / table.name / LIVE / f"c={collector}" / live_name(number)
    _write_parquet(segment, table, rows, blocks)
    return segment


def write_cold(
    run: Path, table: Table, rows: Sequence[tuple[Any, ...]], collector: str, numbers: tuple[int, int, int]
) -> Path:
    """Write rows as one folded segment.

    Args:
        run: The run directory.
        table: The table.
        rows: Tuples in the order of the table's columns; their keys must be new to the run.
        collector: Id of the collector whose live segments it stands for.
        numbers: First and last of those, and its level.

    Returns:
        The segment's path.

    Raises:
        OSError: It can't be written.
    """
    segment = run / DATA / table.name / COLD / f"c={collector}" / cold_name(*numbers, None)
    _write_parquet(segment, table, rows)
    return segment


def first_live_segment(run: Path, table: Table) -> str:
    """The segment without rows that every run has, with all columns of the version that it was last written by.

    Args:
        run: The run directory.
        table: The table.

    Returns:
        Its path.
    """
    return str(run.absolute() / DATA / table.name / LIVE / f"c={NO_COLLECTOR}" / live_name(0))


def first_rows(table: Table, identity: RunIdentity) -> list[tuple[Any, ...]]:
    """The rows that a run begins with.

    Args:
        table: The table.
        identity: The run's identity.

    Returns:
        Its identity for `meta`, nothing for others.
    """
    if table is not META:
        return []
    return [(key, str(value)) for key, value in asdict(identity).items() if value is not None]


def publish_catalog(run: Path, *, mixed: bool) -> None:
    """Write `run.duckdb`, or replace it, in one piece.

    Args:
        run: The run directory, which has at least one segment of each kind for every table.
        mixed: Whether some segments are of an older version and lack columns.
    """
    from stepmeter.store.catalog import write_catalog

    with tempfile.TemporaryDirectory(prefix=".new-", dir=run) as building:
        file = Path(building) / CATALOG_FILE
        write_catalog(run, file, mixed=mixed)
        sync(file)
        file.rename(run / CATALOG_FILE)
    sync(run)


def _make(directory: Path, identity: RunIdentity, name: str) -> Path:
    """Build the run beside and rename it, so that it never lacks its identity."""
    building = directory / f".new-{uuid.uuid4().hex}"
    building.mkdir()
    try:
        write_identity(building, identity)
        for table in TABLES:
            (building / DATA / table.name).mkdir(parents=True)
        return _rename_to_free_name(building, directory, name)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _rename_to_free_name(building: Path, directory: Path, name: str) -> Path:
    candidate, number = directory / name, 1
    while True:
        if not os.path.lexists(candidate):
            try:
                return building.rename(candidate)
            except OSError:
                if not candidate.exists():
                    raise
        number += 1
        candidate = directory / f"{name}-{number}"


def _write_parquet(path: Path, table: Table, rows: Sequence[tuple[Any, ...]], blocks: Sequence[Block] = ()) -> None:
    import pyarrow.parquet

    from stepmeter.store.arrow import to_arrow

    with replacing(path) as partial:
        pyarrow.parquet.write_table(to_arrow(table, rows, blocks), partial, compression="zstd")


__all__ = [
    "RUN_FILE",
    "claim_run",
    "complete_run",
    "create_run",
    "list_runs",
    "read_identity",
    "safe_name",
    "write_segment",
]
