"""A finished run as one ordinary DuckDB file: the same tables, views and comments under the same name, portable.

Attributes are VARIANT in schema `stored`, which is small and quick to ask; the tables of `raw` are views that show
them as JSON, as they were while the run was written, so that every query goes on working.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stepmeter.errors import StoreError
from stepmeter.store.catalog import comment_on, public_scripts, write_public_views
from stepmeter.store.compaction import COMPACT_LOCK_FILE
from stepmeter.store.durable import locked, sync, try_locked
from stepmeter.store.files import DATA, current, list_segments
from stepmeter.store.identity import read_identity, require_known_version, write_identity
from stepmeter.store.schema import META, TABLES
from stepmeter.store.segments import CATALOG_FILE, WRITERS_FILE, complete_run, first_live_segment
from stepmeter.store.template import template_file
from stepmeter.store.views import listed_view, literal
from stepmeter.store.watermark import WATERMARKS, read_watermarks

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from stepmeter.store.identity import RunIdentity
    from stepmeter.store.model import Column, Table

SEALED_STORAGE_VERSION: Final = "v1.5.0"
"""The oldest format with VARIANT; DuckDB 1.5 and 2.0 read it."""

_VARIANTS: Final = frozenset({"attributes", "values"})


def seal(run: Path) -> bool:
    """Make a run one native DuckDB file and remove its segments; readers go on throughout.

    Args:
        run: The run directory.

    Returns:
        Whether it was sealed now; False when it was already.

    Raises:
        StoreVersionError: A newer stepmeter wrote it.
        StoreError: It is being written, or can't be read.
        OSError: The directory can't be written.
    """
    require_known_version(run, read_identity(run))
    with try_locked(run / WRITERS_FILE) as alone:
        if not alone:
            raise StoreError(
                f"{run}: a collector writes to it, or did a minute ago; stop it with SIGTERM or wait, then seal again"
            )
        if read_identity(run).sealed_ns is not None:
            _remove_segments(run)  # a seal that was interrupted left them
            return False
        complete_run(run)
        if not (run / DATA).is_dir():
            raise StoreError(f"{run}: no directory {DATA} in it; the run is not whole, copy or collect it again")
        with locked(run / COMPACT_LOCK_FILE):
            _seal_or_say(run)
        return True


def _seal_or_say(run: Path) -> None:
    import duckdb

    from stepmeter.store.query import one_line

    try:
        _seal(run)
    except duckdb.Error as error:
        raise StoreError(f"{run}: {one_line(error)}; nothing was changed") from error


def _seal(run: Path) -> None:
    marks = read_watermarks(run)
    steps = None if marks is None else sum(mark.recorded_steps for mark in marks)
    identity = replace(read_identity(run), sealed_ns=time.time_ns(), sealed_steps=steps)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=run) as building:
        file = Path(building) / CATALOG_FILE
        _write_native(run, file, identity)
        sync(file)
        # from here on a reader finds the whole run in the file, before and after it is told so
        file.rename(run / CATALOG_FILE)
    sync(run)
    write_identity(run, identity)
    _remove_segments(run)


def _remove_segments(run: Path) -> None:
    """In one piece first, so that nobody takes half of them for the run."""
    for name in (DATA, WATERMARKS):
        going = run / f".gone-{uuid.uuid4().hex}"
        if (run / name).exists():
            (run / name).rename(going)
            shutil.rmtree(going, ignore_errors=True)
    for left in run.glob(".gone-*"):
        shutil.rmtree(left, ignore_errors=True)


def _write_native(run: Path, file: Path, identity: RunIdentity) -> None:
    import duckdb

    segments = {table: current(found) for table, found in list_segments(run).items()}
    with duckdb.connect(config={"temp_directory": str(file.parent)}) as connection:
        connection.execute("CREATE SCHEMA raw")
        for table, found in segments.items():
            cold, live = ([s.path for s in found if bool(s.level) is folded] for folded in (True, False))
            full = first_live_segment(run, table) if identity.migrated_from else None
            connection.execute(listed_view(table, cold, live, version=identity.store_version, with_all_columns=full))
        template = sealed_template()
        if template.exists():
            shutil.copyfile(template, file)
            connection.execute(f"ATTACH {literal(str(file))} AS run")
        else:
            _attach_new(connection, file)
        for table in TABLES:
            _store(connection, table)
        connection.execute(
            f"INSERT INTO run.stored.{META.name} VALUES ('sealed_ns', {literal(str(identity.sealed_ns))})"
        )
        connection.execute("CHECKPOINT run; DETACH run")


def sealed_template() -> Path:
    """The file of tables and views without rows that the package brings for runs to be sealed.

    Returns:
        Its path.
    """
    return template_file("sealed", (SEALED_STORAGE_VERSION, *public_scripts(), *map(_definition, TABLES)))


def write_sealed_template(file: Path) -> None:
    """Write the file of tables and views without rows.

    Args:
        file: Where to write; it must not exist.
    """
    import duckdb

    with duckdb.connect() as connection:
        _attach_new(connection, file)
        connection.execute("CHECKPOINT run; DETACH run")


def _attach_new(connection: DuckDBPyConnection, file: Path) -> None:
    connection.execute(f"ATTACH {literal(str(file))} AS run (STORAGE_VERSION '{SEALED_STORAGE_VERSION}')")
    connection.execute("USE run; CREATE SCHEMA raw; CREATE SCHEMA stored")
    for table in TABLES:
        connection.execute(_definition(table))
        comment_on(connection, "TABLE", f"stored.{table.name}", table)
        comment_on(connection, "VIEW", f"raw.{table.name}", table)
    write_public_views(connection)
    connection.execute("USE memory")


def _definition(table: Table) -> str:
    stored = ", ".join(f'"{c.name}" {"VARIANT" if c.name in _VARIANTS else c.type}' for c in table.columns)
    shown = ", ".join(_shown(column) for column in table.columns)
    name = table.name
    return f"CREATE TABLE stored.{name} ({stored}); CREATE VIEW raw.{name} AS SELECT {shown} FROM stored.{name}"


def _store(connection: DuckDBPyConnection, table: Table) -> None:
    stored = ", ".join(_stored(column) for column in table.columns)
    order = f" ORDER BY {table.order}" if table.order else ""
    source, target = f"memory.raw.{table.name}", f"run.stored.{table.name}"
    connection.execute(f"INSERT INTO {target} SELECT {stored} FROM {source}{order}")
    counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in (source, target)]
    if counts[0] != counts[1]:
        raise StoreError(f"sealing {table.name}: read {counts[0]} rows and wrote {counts[1]}; nothing was changed")


def _stored(column: Column) -> str:
    return f'"{column.name}"::JSON::VARIANT AS "{column.name}"' if column.name in _VARIANTS else f'"{column.name}"'


def _shown(column: Column) -> str:
    return (
        f'nullif("{column.name}"::JSON::VARCHAR, \'null\') AS "{column.name}"'
        if column.name in _VARIANTS
        else f'"{column.name}"'
    )
