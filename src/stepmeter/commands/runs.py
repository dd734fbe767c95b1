"""`stepmeter runs`: which runs there are."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from stepmeter.store.upkeep import RunOverview

SUMMARY = "list the runs of a directory"
EXAMPLE = "stepmeter runs stepmeter-runs --json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument(
        "directory", nargs="?", type=Path, metavar="D", help="where runs live ($STEPMETER_DIR or ./stepmeter-runs)"
    )
    parser.add_argument("--json", action="store_true", help="write a list of objects")


def execute(args: argparse.Namespace) -> int:
    """List runs, latest change last.

    Args:
        args: The arguments.

    Returns:
        0.

    Raises:
        RunNotFoundError: There is no such directory.
    """
    from stepmeter.errors import RunNotFoundError
    from stepmeter.store.find import runs_directory
    from stepmeter.store.upkeep import overview

    directory = args.directory or runs_directory()
    if not directory.is_dir():
        raise RunNotFoundError(f"{directory}: no such directory; start a run: stepmeter run -- CMD")
    found = overview(directory)
    if args.json:
        print(json.dumps([_plain(run) for run in found]))
    elif found:
        _write_table(found)
    else:
        print(f"{directory} has no runs; start one: stepmeter run -- CMD", file=sys.stderr)
    return 0


def state(run: RunOverview) -> str:
    """Say how far a run is.

    Args:
        run: The run.

    Returns:
        `sealed`, `written` while a collector may still write to it, else `finished`.
    """
    if run.identity.sealed_ns is not None:
        return "sealed"
    return "written" if run.written_now else "finished"


def _plain(run: RunOverview) -> dict[str, Any]:
    return {
        "name": run.path.name,
        "run_id": run.identity.run_id,
        "path": str(run.path.absolute()),
        "state": state(run),
        "store_version": run.identity.store_version,
        "created_ns": run.identity.created_ns,
        "changed_ns": run.changed_ns,
        "size_bytes": run.size_bytes,
        "steps": run.steps,
    }


def _write_table(runs: list[RunOverview]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from stepmeter.units import format_bytes

    on_terminal = sys.stdout.isatty()
    table = Table(box=box.SIMPLE_HEAD if on_terminal else box.ASCII2)
    for name in ("run", "state", "changed (UTC)", "steps", "size", "id"):
        table.add_column(name, justify="right" if name in {"steps", "size"} else "left", overflow="fold")
    for run in runs:
        changed = datetime.fromtimestamp(run.changed_ns / 1e9, timezone.utc).strftime("%Y-%m-%d %H:%M")
        steps = "" if run.steps is None else str(run.steps)
        cells = (run.path.name, state(run), changed, steps, format_bytes(run.size_bytes), run.identity.run_id)
        table.add_row(*map(Text, cells))
    Console(file=sys.stdout, width=None if on_terminal else 1_000_000).print(table)
