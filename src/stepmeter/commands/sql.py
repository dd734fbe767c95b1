"""`stepmeter sql`: ask a run in SQL."""

from __future__ import annotations

import csv
import json
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from stepmeter.store.query import Answer

SUMMARY = "ask a run in SQL, read-only"
EXAMPLE = 'stepmeter sql demo "SELECT phase, median(cpu_ns) FROM step_phases GROUP BY phase" --format csv'

_WHOLE = 1_000_000
"""Width of a table in characters where nothing limits it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument("run", metavar="RUN", help="a run directory, its run.duckdb, or a run's name or id")
    parser.add_argument("query", metavar="QUERY", help="one query in DuckDB's SQL; - reads it from standard input")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="how to write the rows")


def execute(args: argparse.Namespace) -> int:
    """Write the rows of a query to stdout.

    Args:
        args: The arguments.

    Returns:
        0.

    Raises:
        RunNotFoundError: There is no such run.
        StoreError: The query is wrong or the run can't be read.
    """
    from stepmeter.store.reader import find_run, open_run

    query = sys.stdin.read() if args.query == "-" else args.query
    with open_run(find_run(args.run)) as reader:
        answer = reader.snapshot().answer(query)
    {"table": _write_table, "csv": _write_csv, "json": _write_json}[args.format](answer)
    return 0


def _write_table(answer: Answer) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD if sys.stdout.isatty() else box.ASCII2)
    for number, column in enumerate(answer.columns):
        numeric = any(isinstance(row[number], int | float) for row in answer.rows)
        table.add_column(Text(column), justify="right" if numeric else "left", overflow="fold")
    for row in answer.rows:
        table.add_row(*(Text("" if value is None else str(value)) for value in row))
    # a pipe has no width to keep to: whoever reads it wants whole values
    width = None if sys.stdout.isatty() else _WHOLE
    Console(file=sys.stdout, width=width).print(table)


def _write_csv(answer: Answer) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(answer.columns)
    writer.writerows(answer.rows)


def _write_json(answer: Answer) -> None:
    rows = [dict(zip(answer.columns, map(_plain, row), strict=True)) for row in answer.rows]
    print(json.dumps(rows, allow_nan=False))


def _plain(value: Any) -> Any:
    """What JSON can hold of a value; NaN and infinities, dates and ids become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
