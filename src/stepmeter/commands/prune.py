"""`stepmeter prune`: remove old runs, whole."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Final

SUMMARY = "remove old runs, whole; one that is being written stays"
EXAMPLE = "stepmeter prune stepmeter-runs --keep 20 --max-bytes 50GB --dry-run"

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES_BINARY: Final = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument(
        "directory", nargs="?", type=Path, metavar="D", help="where runs live ($STEPMETER_DIR or ./stepmeter-runs)"
    )
    parser.add_argument("--keep", type=_count, metavar="N", help="keep the N that changed last")
    parser.add_argument(
        "--older-than", type=_duration_s, metavar="AGE", help="remove what has not changed for 30d, 12h …"
    )
    parser.add_argument(
        "--max-bytes", type=_size_bytes, metavar="B", help="remove the oldest until 50GB, 500MiB … are left"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would go and remove nothing")


def execute(args: argparse.Namespace) -> int:
    """Remove runs and say which.

    Args:
        args: The arguments.

    Returns:
        0.

    Raises:
        UsageError: Nothing says which runs should go.
        RunNotFoundError: There is no such directory.
    """
    from stepmeter.errors import RunNotFoundError, UsageError
    from stepmeter.store import upkeep
    from stepmeter.store.find import runs_directory
    from stepmeter.units import format_bytes

    if args.keep is None and args.older_than is None and args.max_bytes is None:
        raise UsageError("nothing says which runs should go; give --keep, --older-than or --max-bytes")
    directory = args.directory or runs_directory()
    if not directory.is_dir():
        raise RunNotFoundError(f"{directory}: no such directory; name the one that holds the runs")
    before_ns = None if args.older_than is None else time.time_ns() - args.older_than * 10**9
    runs = upkeep.overview(directory)
    going = upkeep.to_prune(runs, keep=args.keep, changed_before_ns=before_ns, max_bytes=args.max_bytes)
    gone = going if args.dry_run else upkeep.remove(going)
    for run in gone:
        print(run.path)
    total = format_bytes(sum(run.size_bytes for run in gone))
    verb = "would remove" if args.dry_run else "removed"
    print(f"stepmeter prune: {verb} {len(gone)} of {len(runs)} runs, {total}", file=sys.stderr)
    return 0


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'found "{text}", expected a number of runs')
    return int(text)


def _duration_s(text: str) -> int:
    match = re.fullmatch(r"(\d+)([smhdw])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f'found "{text}", expected an age such as 30d or 12h')
    return int(match[1]) * _SECONDS[match[2]]


def _size_bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    unit = {**_BYTES, **_BYTES_BINARY}.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise argparse.ArgumentTypeError(f'found "{text}", expected a size such as 50GB or 500MiB')
    return int(match[1]) * unit
