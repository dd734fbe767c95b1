"""`stepmeter watch RUN`: a run as it goes, in the terminal."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from typing import TYPE_CHECKING

from stepmeter.errors import UsageError
from stepmeter.report.summary import DEFAULT_WIDTH
from stepmeter.store.reader import find_run

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

SUMMARY = "watch a run as it goes: verdict, phases, ranks; the same numbers as the summary"
EXAMPLE = "stepmeter watch demo"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", metavar="RUN", help="a run directory, its run.duckdb, or a run's name or id")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between refreshes")
    parser.add_argument("--once", action="store_true", help="draw once and exit, as where output is no terminal")


def execute(args: argparse.Namespace) -> int:
    """Show the run until interrupted.

    Args:
        args: The parsed arguments.

    Returns:
        0.

    Raises:
        UsageError: The interval is not above 0.
    """
    from rich.console import Console

    from stepmeter.live.terminal import watch

    run = find_run(args.run)
    if not args.interval > 0:
        raise UsageError(f"--interval {args.interval:g}: expected seconds above 0, for example --interval 0.5")
    if args.once or not sys.stdout.isatty():
        _draw_once(run)
        return 0
    stop = threading.Event()
    try:
        watch(run, stop, Console(highlight=False), interval_s=args.interval)
    except KeyboardInterrupt:
        stop.set()
    return 0


def _draw_once(run: Path) -> None:
    from stepmeter.analysis.step_time.live import LiveStepTimeSession
    from stepmeter.live.terminal import draw
    from stepmeter.report.parts import render_text

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if is_terminal else DEFAULT_WIDTH
    with LiveStepTimeSession(run) as session:
        picture = draw(session.refresh(), run.name, time.time_ns(), width, unicode=is_terminal)
    sys.stdout.write(render_text([picture], width=width, color=is_terminal))
