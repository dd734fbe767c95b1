"""A DuckDB connection that is locked into one run's directory."""

from __future__ import annotations

import glob
from dataclasses import dataclass
from pathlib import Path

import duckdb

from stepmeter.store.segments import CATALOG_FILE
from stepmeter.store.views import literal


@dataclass(frozen=True, slots=True)
class Spill:
    """Bounds on what a statement takes.

    Attributes:
        directory: Where it goes when it needs more memory; has to exist.
        memory_bytes: How much memory it may take.
    """

    directory: Path
    memory_bytes: int


def connect(path: Path, *, sealed: bool, spill: Spill | None) -> duckdb.DuckDBPyConnection:
    """Open a connection that reads inside one run's directory and nothing else.

    Args:
        path: The run directory.
        sealed: Whether the run is one file, which is then attached; else schema `raw` is made and empty.
        spill: Bounds on what a statement takes; None = DuckDB's own.

    Returns:
        The connection; its configuration is locked.
    """
    config: dict[str, str | bool | int | float | list[str]] = {"python_enable_replacements": "false"}
    if spill is not None:
        config |= {"temp_directory": str(spill.directory), "memory_limit": f"{spill.memory_bytes // 1024} KiB"}
    connection = duckdb.connect(config=config)
    # its bar, after two seconds, would go to stdout, among what a command prints there
    connection.execute("SET enable_progress_bar = false")
    plain = f"{path.absolute()}/"
    if sealed:
        connection.execute(f"ATTACH {literal(plain + CATALOG_FILE)} AS run (READ_ONLY); USE run")
    # a path is compared as it stands in the statement, where its glob characters are escaped
    connection.execute(f"SET allowed_directories = [{literal(plain)}, {literal(glob.escape(plain))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    if not sealed:
        connection.execute("CREATE SCHEMA raw")
    return connection
