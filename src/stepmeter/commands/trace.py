"""`stepmeter trace RUN`: a run as a timeline for Perfetto or chrome://tracing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stepmeter.errors import UsageError
from stepmeter.report.trace import Selection, write_trace
from stepmeter.store.reader import find_run
from stepmeter.units import NS_PER_S

if TYPE_CHECKING:
    import argparse

SUMMARY = "write a run as a timeline that Perfetto and chrome://tracing open"
EXAMPLE = "stepmeter trace demo -o trace.json --step-range 100:200"

_LARGEST_S: Final = 9_000_000_000  # beyond it nanoseconds leave 64 bits


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("run", metavar="RUN", help="a run directory, its run.duckdb, or a run's name or id")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("trace.json"), metavar="F", help="default: trace.json"
    )
    parser.add_argument("--stream", action="append", metavar="S", help='only this stream; "default" is the unnamed one')
    parser.add_argument("--rank", action="append", type=int, metavar="R", help="only this rank")
    parser.add_argument("--step-range", metavar="A:B", help="only steps from A on and below B")
    parser.add_argument("--time-range", metavar="T0:T1", help="only what overlaps this time, in Unix seconds")
    parser.add_argument("--temp-dir", type=Path, metavar="D", help="where sorting goes that does not fit into memory")
    parser.add_argument("--merge", type=Path, metavar="F", help="a torch.profiler trace to lay on the same clock")


def execute(args: argparse.Namespace) -> int:
    """Write the trace.

    Args:
        args: The parsed arguments.

    Returns:
        0.

    Raises:
        UsageError: A range is wrong.
        StoreError: The run can't be read or the trace can't be written.
    """
    selection = Selection(
        streams=None if args.stream is None else tuple(args.stream),
        ranks=None if args.rank is None else tuple(args.rank),
        steps=_steps(args.step_range),
        time_ns=_times(args.time_range),
    )
    count = write_trace(find_run(args.run), args.output, selection, args.temp_dir, args.merge)
    nothing = "" if count else " (nothing of the run is in that selection)" if _selects(args) else " (the run has none)"
    print(f"wrote {count} spans to {args.output}{nothing}; open it in https://ui.perfetto.dev", file=sys.stderr)
    return 0


def _selects(args: argparse.Namespace) -> bool:
    return any(each is not None for each in (args.stream, args.rank, args.step_range, args.time_range))


def _steps(text: str | None) -> tuple[int | None, int | None]:
    low, high = _parts(text, "--step-range", "100:200")
    try:
        return (int(low) if low else None, int(high) if high else None)
    except ValueError:
        raise UsageError(f"--step-range {text}: expected whole numbers, for example 100:200 or 100:") from None


def _times(text: str | None) -> tuple[int | None, int | None]:
    low, high = _parts(text, "--time-range", "1700000000:1700000060")
    try:
        return (_ns(low) if low else None, _ns(high) if high else None)
    except ValueError:
        raise UsageError(f"--time-range {text}: expected Unix seconds, for example 1700000000:1700000060") from None


def _ns(text: str) -> int:
    seconds = float(text)
    if not abs(seconds) < _LARGEST_S:
        raise ValueError(text)
    whole = int(seconds)
    return whole * NS_PER_S + round((seconds - whole) * NS_PER_S)


def _parts(text: str | None, option: str, example: str) -> tuple[str, str]:
    if text is None:
        return "", ""
    low, colon, high = text.partition(":")
    if not colon:
        raise UsageError(f"{option} {text}: expected two ends with a colon, for example {example}")
    return low.strip(), high.strip()
