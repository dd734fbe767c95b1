"""Queries that a person wrote: one statement, that reads and does nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb

from stepmeter.errors import StoreError


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gave.

    Attributes:
        columns: Names of the columns, in order.
        rows: The rows as tuples.
    """

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def one_line(error: BaseException) -> str:
    """Fold DuckDB's message into one line.

    Args:
        error: What DuckDB raised.

    Returns:
        Its message without the excerpt of the query, or all of it when there is none.
    """
    message = str(error).partition("\n\nLINE ")[0]
    return " ".join(message.split())


def read_answer(result: duckdb.DuckDBPyConnection) -> Answer:
    """Read a result to its end.

    Args:
        result: What `execute` gave.

    Returns:
        Its columns and rows.
    """
    return Answer(tuple(column[0] for column in result.description or ()), result.fetchall())


def require_query(sql: str) -> None:
    """Let through what only reads.

    Args:
        sql: What a person wrote.

    Raises:
        StoreError: It is not exactly one statement, or one that would write.
    """
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise StoreError(one_line(error)) from error
    if len(statements) != 1:
        raise StoreError(f"found {len(statements)} statements, expected one query")
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        require_query(_explained(statements[0].query))
    elif kind != duckdb.StatementType.SELECT:
        raise StoreError(f"found a statement that is no query ({kind.name}); a run is read-only: use SELECT")


def _explained(sql: str) -> str:
    """What an EXPLAIN explains: with ANALYZE it would be carried out."""
    rest = sql.strip()[len("EXPLAIN") :].strip()
    if rest.startswith("("):
        rest = rest.partition(")")[2].strip()
    return rest[len("ANALYZE") :] if rest[: len("ANALYZE")].upper() == "ANALYZE" else rest
