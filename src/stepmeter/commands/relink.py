"""`stepmeter relink`: let any DuckDB client read a run again after its directory was moved."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

SUMMARY = "rewrite the paths in run.duckdb after a run was moved"
EXAMPLE = "stepmeter relink /archive/demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument("run", metavar="RUN", help="a run directory, its run.duckdb, or a run's name or id")


def execute(args: argparse.Namespace) -> int:
    """Rewrite a run's `run.duckdb`.

    Args:
        args: The arguments.

    Returns:
        0.

    Raises:
        RunNotFoundError: There is no such run.
        StoreError: It has no segments.
    """
    from stepmeter.store.find import find_run
    from stepmeter.store.upkeep import relink

    run = find_run(args.run)
    done = relink(run)
    print(f"{run / 'run.duckdb'}: {'rewritten' if done else 'sealed, so that it has no paths in it'}", file=sys.stderr)
    return 0
