"""The SQL of `raw.<table>`: compacted rows as they lie, and those of live segments that are not among them yet.

Compacted rows are unique by their key, so that only the few live ones are compared: with each other, and with the
compacted ones of their own range. Deduplicating all of them took 2 s for 8 million steps; this takes milliseconds.
"""

from __future__ import annotations

import glob
from typing import TYPE_CHECKING, Final

from stepmeter.store.files import COLD, DATA, LIVE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stepmeter.store.model import Table

_FILE_COLUMN: Final = "_stepmeter_file"
_DATA_DIRECTORY: Final = "raw.data_directory()"


def literal(text: str) -> str:
    """Quote a string for SQL.

    Args:
        text: Any string.

    Returns:
        The SQL literal.
    """
    return "'" + text.replace("'", "''") + "'"


def names(table: Table) -> str:
    """The columns of a table for a SELECT.

    Args:
        table: The table.

    Returns:
        Quoted names with commas.
    """
    return ", ".join(f'"{name}"' for name in table.column_names)


def distinct_rows(table: Table, source: str) -> str:
    """The statement that keeps one row of each key.

    Args:
        table: The table.
        source: What to select from.

    Returns:
        A SELECT of all columns.
    """
    if not table.key:
        return f"SELECT {names(table)} FROM {source}"
    key = ", ".join(f'"{name}"' for name in table.key)
    order = f" ORDER BY {', '.join(table.prefer)}" if table.prefer else ""
    return f"SELECT {names(table)} FROM {source} QUALIFY row_number() OVER (PARTITION BY {key}{order}) = 1"


def not_in(table: Table, rows: str, others: str) -> str:
    """The statement that keeps the rows whose key is not among others.

    Args:
        table: The table.
        rows: Name of a relation.
        others: Name of another.

    Returns:
        A SELECT of all columns of `rows`; of all rows when the table has no key.
    """
    if not table.key:
        return f"SELECT {names(table)} FROM {rows}"
    same = " AND ".join(f'other."{name}" IS NOT DISTINCT FROM mine."{name}"' for name in table.key)
    # the bound lets DuckDB pass over all compacted rows but the newest
    near = f' AND other."{table.order}" >= (SELECT min("{table.order}") FROM {rows})' if table.order else ""
    return (
        f"SELECT {names(table)} FROM {rows} AS mine "
        f"WHERE NOT EXISTS (SELECT 1 FROM {others} AS other WHERE {same}{near})"
    )


def listed_view(
    table: Table, cold: Sequence[str], live: Sequence[str], *, version: int, with_all_columns: str | None = None
) -> str:
    """The statement that defines `raw.<table>` over files that are known by name.

    Args:
        table: The table.
        cold: Paths of folded segments.
        live: Paths of live ones.
        version: Version of the store that they were written by.
        with_all_columns: When older files lack columns that newer ones have, a segment without rows that has all.

    Returns:
        A `CREATE OR REPLACE VIEW` statement.
    """
    sources = [
        (name, _read(files, table, version, with_all_columns))
        for name, files in (("cold", cold), ("live", live))
        if files
    ]
    if not sources:
        nothing = ", ".join(f'NULL::{column.type} AS "{column.name}"' for column in table.columns)
        return f"CREATE OR REPLACE VIEW raw.{table.name} AS SELECT {nothing} WHERE false"
    parts = ", ".join(f"{name} AS NOT MATERIALIZED ({source})" for name, source in sources)
    found = [name for name, _ in sources]
    selected = {
        ("cold", "live"): f"SELECT {names(table)} FROM cold UNION ALL ({_fresh(table)})",
        ("cold",): f"SELECT {names(table)} FROM cold",
        ("live",): distinct_rows(table, "live"),
    }[tuple(found)]
    return f"CREATE OR REPLACE VIEW raw.{table.name} AS WITH {parts} SELECT {names(table)} FROM ({selected})"


def data_directory(run: Path) -> str:
    """The statement that says where the segments are: the one thing in `run.duckdb` that differs between runs.

    Args:
        run: The run directory.

    Returns:
        A `CREATE OR REPLACE MACRO` statement, with a comment.
    """
    data = literal(f"{glob.escape(str(run.absolute()))}/{DATA}")
    return (
        f"CREATE OR REPLACE MACRO {_DATA_DIRECTORY} AS {data}; "
        f"COMMENT ON MACRO {_DATA_DIRECTORY.partition('(')[0]} IS 'where the segments are, its glob characters escaped'"
    )


def globbing_view(table: Table, *, mixed: bool) -> str:
    """The statement that defines `raw.<table>` for clients that know nothing of segments, after `data_directory`.

    The listing stands before the scans: DuckDB 1.5 and 2.0 then list first and expand the scans' patterns after,
    so that whatever the listing counts is among the files of the scans.

    Args:
        table: The table.
        mixed: Whether older files lack columns that newer ones have.

    Returns:
        A `CREATE OR REPLACE VIEW` statement.
    """
    parts = ", ".join(
        f"{tier} AS NOT MATERIALIZED (SELECT {names(table)} FROM counted JOIN read_parquet("
        f"{_under(table, f'{tier}/*/*')}, filename = {literal(_FILE_COLUMN)}, hive_partitioning = false"
        f"{', union_by_name = true' if mixed else ''}) AS stored ON stored.{_FILE_COLUMN} = counted.file)"
        for tier in (COLD, LIVE)
    )
    return (
        f"CREATE OR REPLACE VIEW raw.{table.name} AS "
        f"WITH listed AS MATERIALIZED ({_listing(_under(table, '*/*/*'))}), "
        f"counted AS MATERIALIZED (SELECT file FROM listed AS one WHERE NOT EXISTS (SELECT 1 FROM listed AS other "
        f"WHERE other.directory = one.directory AND other.level > one.level AND other.first <= one.first "
        f"AND other.last >= one.last)), {parts} "
        f"SELECT {names(table)} FROM cold UNION ALL ({_fresh(table)})"
    )


def _fresh(table: Table) -> str:
    """Rows of live segments, once each, that no folded segment has."""
    if not table.key:
        return f"SELECT {names(table)} FROM live"
    return f"WITH once AS NOT MATERIALIZED ({distinct_rows(table, 'live')}) {not_in(table, 'once', 'cold')}"


def _listing(pattern: str) -> str:
    name = r"'/c=([^/]*)/([0-9]+)(?:-([0-9]+)\.L([0-9]+)\.[^/]*)?\.parquet$', ['directory', 'first', 'last', 'level']"
    return (
        "SELECT file, part.directory AS directory, part.first::BIGINT AS first, "
        "coalesce(nullif(part.last, ''), part.first)::BIGINT AS last, "
        "coalesce(nullif(part.level, ''), '0')::BIGINT AS level "
        f"FROM (SELECT file, regexp_extract(file, {name}) AS part FROM glob({pattern}))"
    )


def _under(table: Table, pattern: str) -> str:
    return f"{_DATA_DIRECTORY} || {literal(f'/{table.name}/{pattern}.parquet')}"


def _read(files: Sequence[str], table: Table, version: int, with_all_columns: str | None) -> str:
    columns = ", ".join(
        f'"{column.name}"' if column.since <= version else f'NULL::{column.type} AS "{column.name}"'
        for column in table.columns
    )
    listed = ", ".join(literal(glob.escape(file)) for file in (*files, *filter(None, [with_all_columns])))
    by_name = ", union_by_name = true" if with_all_columns else ""
    return f"SELECT {columns} FROM read_parquet([{listed}], hive_partitioning = false{by_name})"
