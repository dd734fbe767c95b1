"""The views of a run: `raw.<table>` over its segments, and the public ones of `schema/*.sql` over those."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

from stepmeter.store.schema import META, STORE_VERSION, TABLES
from stepmeter.store.template import SCHEMA_DIR, template_file
from stepmeter.store.views import data_directory, globbing_view, listed_view, literal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from duckdb import DuckDBPyConnection

    from stepmeter.store.model import Table

STORAGE_VERSION: Final = "v1.0.0"
"""Format of `run.duckdb`, so that DuckDB clients from 1.2 on open it; older ones lack functions of the views."""

PUBLIC_VIEWS: Final = (
    *("steps", "step_phases", "spans", "metrics", "histograms", "resources", "meta"),
    *("logs", "history", "alerts", "gpu_power", "step_energy"),
    *("otel_traces", "otel_logs", "otel_metrics_gauge", "otel_metrics_sum", "otel_metrics_histogram"),
    *("otel_metrics_exponential_histogram", "otel_metrics_summary"),
)
"""The public views in the order in which they build on one another; each is a file of `schema/`."""


def public_view(name: str) -> str:
    """The statement that defines a public view.

    Args:
        name: One of `PUBLIC_VIEWS`.

    Returns:
        Its `CREATE VIEW` statement, without the comments.
    """
    return _script(name).partition(";")[0]


def write_catalog(run: Path, file: Path, *, mixed: bool = False) -> None:
    """Write the DuckDB file of views over a run's segments, with a comment on every view and column.

    Binding some thirty views and commenting on 400 columns takes 0.4 s of CPU, which every run would pay at its start:
    the file that the package brings has it done, and lacks only where this run's segments are.

    Args:
        run: The run directory, which has at least one segment for every table.
        file: Where to write; it must not exist and must be called `run.duckdb`.
        mixed: Whether some segments are of an older version and lack columns.
    """
    import duckdb

    template = catalog_template()
    whole = template.exists() and not mixed
    if whole:
        shutil.copyfile(template, file)
    with duckdb.connect(config={"threads": 1}) as connection:
        new = "" if whole else f" (STORAGE_VERSION '{STORAGE_VERSION}')"
        connection.execute(f"ATTACH {literal(str(file))} AS run{new}")
        connection.execute(f"USE run; BEGIN; CREATE SCHEMA IF NOT EXISTS raw; {data_directory(run)}")
        if not whole:
            _write_views(connection, mixed=mixed)
        connection.execute("COMMIT")


def catalog_template() -> Path:
    """The file of views that the package brings for runs that are being written.

    Returns:
        Its path.
    """
    tables = (repr(table) + globbing_view(table, mixed=False) for table in TABLES)
    return template_file("run", (STORAGE_VERSION, *public_scripts(), *tables))


def public_scripts() -> list[str]:
    """What defines the public views, with their own comments.

    Returns:
        The files of `schema/`.
    """
    return [_script(name) for name in PUBLIC_VIEWS]


def _write_views(connection: DuckDBPyConnection, *, mixed: bool) -> None:
    # the public views are bound to tables without files first: listing directories for each takes most of a second
    for table in TABLES:
        connection.execute(listed_view(table, [], [], version=STORE_VERSION))
    write_public_views(connection)
    for table in TABLES:
        connection.execute(globbing_view(table, mixed=mixed))
        comment_on(connection, "VIEW", f"raw.{table.name}", table)


def write_public_views(connection: DuckDBPyConnection) -> None:
    """Define the public views in a database that has the tables of `raw`, each with its comments.

    Args:
        connection: Its current database is the one; it is called `run`.
    """
    for name in PUBLIC_VIEWS:
        connection.execute(_script(name))
        connection.execute(";".join(_inherited_comments(connection, name)) or "SELECT 1")


def comment_on(connection: DuckDBPyConnection, kind: str, name: str, table: Table) -> None:
    """Comment on what shows a table.

    Args:
        connection: The connection.
        kind: `TABLE` or `VIEW`.
        name: Its name with its schema.
        table: The table.
    """
    statements = [f"COMMENT ON {kind} {name} IS {literal(table.comment)}"]
    statements.extend(f'COMMENT ON COLUMN {name}."{c.name}" IS {literal(c.comment)}' for c in table.columns)
    connection.execute(";".join(statements))


def _script(name: str) -> str:
    return (SCHEMA_DIR / f"{name}.sql").read_text(encoding="utf-8")


def _inherited_comments(connection: DuckDBPyConnection, view: str) -> Iterator[str]:
    """A column that its file says nothing about means what the raw column of that name means."""
    known = _raw_comments(view)
    silent = connection.execute(
        "SELECT column_name FROM duckdb_columns() "
        "WHERE schema_name = 'main' AND database_name = 'run' AND table_name = ? AND comment IS NULL",
        [view],
    ).fetchall()
    for (column,) in silent:
        yield f'COMMENT ON COLUMN {view}."{column}" IS {literal(known[column])}'


def _raw_comments(view: str) -> dict[str, str]:
    own_last = sorted(TABLES, key=lambda table: (table.name == view, table is not META))
    return {column.name: column.comment for table in own_last for column in table.columns}
