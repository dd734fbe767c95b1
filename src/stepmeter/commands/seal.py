"""`stepmeter seal`: a finished run as one portable DuckDB file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

SUMMARY = "make a finished run one portable DuckDB file"
EXAMPLE = "stepmeter seal demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument("run", metavar="RUN", help="a run directory, its run.duckdb, or a run's name or id")


def execute(args: argparse.Namespace) -> int:
    """Seal a run; what a collector that died left in its journal comes first.

    Args:
        args: The arguments.

    Returns:
        0.

    Raises:
        RunNotFoundError: There is no such run.
        StoreError: A collector writes to it, or it can't be read.
    """
    from stepmeter.collector.recover import recover
    from stepmeter.store.find import find_run
    from stepmeter.store.seal import seal

    run = find_run(args.run)
    recovered = recover(run.parent)
    if recovered:
        print(f"stepmeter seal: wrote {recovered} requests that a collector had left", file=sys.stderr)
    now = seal(run)
    print(f"{run / 'run.duckdb'} {'is sealed' if now else 'was sealed already'}", file=sys.stderr)
    return 0
