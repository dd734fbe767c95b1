"""`stepmeter ingest`: telemetry that a stock Collector wrote to files, into a store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

SUMMARY = "read what the stock Collector's file exporter wrote into a store"
EXAMPLE = "stepmeter ingest traces.jsonl metrics.jsonl --dir runs --run job-7 --run-name baseline"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="F", help="OTLP JSON lines, or protobuf with lengths; .gz too"
    )
    parser.add_argument("--dir", type=Path, metavar="D", help="where runs live ($STEPMETER_DIR or ./stepmeter-runs)")
    parser.add_argument("--run", metavar="ID", help="id of the run that takes telemetry which names none")
    parser.add_argument("--run-name", metavar="NAME", help="name of that run, which names its directory")
    parser.add_argument("--signal", choices=("traces", "metrics", "logs"), help="what protobuf files hold, if not told")


def execute(args: argparse.Namespace) -> int:
    """Read files into runs; what was read before adds nothing.

    Args:
        args: The arguments.

    Returns:
        0.

    Raises:
        UsageError: A file is not there, or the directory can't be written.
        StoreError: Some of it could not be read; the rest is in the store.
    """
    from stepmeter.collector.decode import RunKey
    from stepmeter.collector.ingest import ingest
    from stepmeter.errors import StoreError, UsageError
    from stepmeter.store.find import runs_directory

    if args.run_name and not args.run:
        raise UsageError("--run-name without --run; give the run's id too")
    for file in args.files:
        if not file.is_file():
            raise UsageError(f"{file}: no such file; name files that a file exporter wrote")
    run = RunKey(args.run, args.run_name) if args.run else None
    result = ingest(args.files, args.dir or runs_directory(), run, args.signal)
    for problem in result.problems:
        print(f"stepmeter ingest: {problem}", file=sys.stderr)
    counts = f"{result.requests} requests, {result.rows} rows, {result.repeated} requests known already"
    print(f"stepmeter ingest: {counts}", file=sys.stderr)
    if result.problems:
        raise StoreError(f"{len(result.problems)} requests could not be taken; the rest is in the store")
    return 0
