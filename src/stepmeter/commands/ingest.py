"""`stepmeter ingest`: telemetry that was written to files, into a store."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

SUMMARY = "take files of OTLP into a store: of a program without a collector, or of the stock Collector's file exporter"
EXAMPLE = "stepmeter ingest traces.jsonl metrics.jsonl --dir runs --run job-7 --run-name baseline"

_COARSE_NS: Final = 20_000_000
"""By so much may a file's time be behind the clock: the kernel's own ticks."""

_SHOWN: Final = 10
"""Problems that are told one by one; a file that is none of ours has one a line."""


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
    directory, begun_ns = args.dir or runs_directory(), time.time_ns()
    try:
        result = ingest(args.files, directory, run, args.signal)
    except OSError as error:
        where = error.filename or directory
        problem = error.strerror or str(error)
        raise UsageError(f"{where}: {problem}; expected files to read and a directory to write, see --dir") from error
    _tell(result.problems)
    counts = f"{result.requests} requests, {result.rows} rows, {result.repeated} requests known already"
    print(f"stepmeter ingest: {counts}", file=sys.stderr)
    for path in _changed(directory, begun_ns):
        print(f"stepmeter ingest: into {path}; next: stepmeter summary {path}", file=sys.stderr)
    if result.problems:
        requests = "1 request" if len(result.problems) == 1 else f"{len(result.problems)} requests"
        raise StoreError(f"{requests} could not be taken; the rest is in the store")
    return 0


def _tell(problems: Sequence[str]) -> None:
    for problem in problems[:_SHOWN]:
        print(f"stepmeter ingest: {problem}", file=sys.stderr)
    if len(problems) > _SHOWN:
        print(f"stepmeter ingest: and {len(problems) - _SHOWN} more like these", file=sys.stderr)


def _changed(directory: Path, since_ns: int) -> list[Path]:
    """The runs that something was added to."""
    from stepmeter.store.upkeep import overview

    return [run.path for run in overview(directory) if run.changed_ns >= since_ns - _COARSE_NS]
