"""`stepmeter sample`: read devices and an inference server beside a program that is not ours."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from stepmeter.conventions import environment
from stepmeter.errors import UsageError

if TYPE_CHECKING:
    import argparse

SUMMARY = "sample devices and an inference server next to a program that is not ours"
EXAMPLE = "stepmeter sample --name task --scrape http://127.0.0.1:8000/metrics --engine vllm"

_ENGINES = ("vllm", "sglang", "tgi", "llamacpp", "trtllm")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument("--scrape", metavar="URL", action="append", default=[], help="a metrics page; repeatable")
    parser.add_argument("--engine", choices=_ENGINES, help="what serves there; never guessed")
    parser.add_argument("--interval", metavar="S", type=float, default=1.0, help="time between readings (default 1)")
    parser.add_argument("--duration", metavar="S", type=float, help="end after so long (default: at Ctrl-C)")
    parser.add_argument("--dir", help="directory of runs (default: $STEPMETER_DIR or ./stepmeter-runs)")
    parser.add_argument("--name", default="sample", help="name of the run (default: sample)")
    parser.add_argument(
        "--no-collector", action="store_true", help="send to the configured OTLP endpoint only; no store"
    )


def execute(args: argparse.Namespace) -> int:
    """Sample until Ctrl-C or for a time.

    Args:
        args: The parsed arguments.

    Returns:
        0; 5 when nothing that was read was taken.

    Raises:
        UsageError: The arguments do not fit together.
        StepmeterError: The collector did not start.
    """
    from stepmeter.commands import launch
    from stepmeter.errors import CheckFailedError
    from stepmeter.runtime.sampling import Plan, sample

    _check(args)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    collector = None
    if not args.no_collector:
        directory = Path(args.dir or os.environ.get(environment.DIR) or environment.DEFAULT_DIR)
        collector = launch.start_collector(directory, args.name, os.environ)
        os.environ.update(launch.instrumented(os.environ, collector))
    plan = Plan(_gpus(), tuple(args.scrape), args.engine, args.interval)
    where = "the configured endpoint" if collector is None else os.path.relpath(collector.run_dir)
    begun = f"sampling {len(plan.uuids)} GPUs and {len(plan.scrape)} servers into {where}; Ctrl-C ends it"
    try:
        found = sample(plan, stop, args.duration, _say, lambda: _say(begun))
    finally:
        if collector is not None:
            launch.stop_collector(collector)
    _say(f"{found.sent} readings taken, {found.failed} not taken, {found.dropped} dropped")
    if collector is not None:
        _say(f"next: stepmeter energy {where} --steps steps.jsonl")
    if found.failed and not found.sent:
        raise CheckFailedError("no reading was taken; check the OTLP endpoint with `stepmeter doctor`")
    return 0


def _check(args: argparse.Namespace) -> None:
    if bool(args.scrape) != bool(args.engine):
        raise UsageError("--scrape and --engine go together, for instance --scrape http://127.0.0.1:8000/metrics")
    for url in args.scrape:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise UsageError(f"--scrape {url}: expected an http:// or https:// address of a metrics page")
    if not 0.05 <= args.interval < float("inf"):
        raise UsageError(f"--interval {args.interval:g}: expected 0.05 s or more")
    if args.duration is not None and not args.duration > 0:
        raise UsageError(f"--duration {args.duration:g}: expected seconds above 0; leave it out to sample until Ctrl-C")


def _gpus() -> list[str]:
    """All GPUs that CUDA would show to a program of this environment; none where NVML has no answer."""
    from stepmeter.devices.nvml import find_devices

    return [device.uuid for device in find_devices(os.environ)]


def _say(line: str) -> None:
    print(f"stepmeter: {line}", file=sys.stderr, flush=True)
