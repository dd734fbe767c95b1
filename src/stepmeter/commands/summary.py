"""`stepmeter summary RUN`: the verdict on a run, at any time."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stepmeter.report.summary import DEFAULT_WIDTH, summarize
from stepmeter.store.reader import find_run

if TYPE_CHECKING:
    import argparse

SUMMARY = "give the verdict on a run: where its time went, why, and what to try first"
EXAMPLE = "stepmeter summary demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", metavar="RUN", help="a run directory, its run.duckdb, or a run's name or id")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, for programs")
    parser.add_argument(
        "--html", type=Path, metavar="F", help="write a report that needs nothing else to this file too"
    )


def execute(args: argparse.Namespace) -> int:
    """Print the verdict.

    Args:
        args: The parsed arguments.

    Returns:
        0, also for a run without steps: the text says what to check.

    Raises:
        StoreError: The run can't be read, or the report can't be written.
    """
    summary = summarize(find_run(args.run))
    if args.html is not None:
        from stepmeter.report.html import write_html

        write_html(summary, args.html)
        print(f"wrote {args.html}", file=sys.stderr)
    if args.json:
        sys.stdout.write(summary.json())
        return 0
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if is_terminal else DEFAULT_WIDTH
    sys.stdout.write(summary.text(width, color=is_terminal))
    return 0
