"""`stepmeter energy RUN`: what a training step, or a step of an agent's trajectory, cost."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from stepmeter.analysis.energy.trajectory import DroppedStep, Trajectory, Withheld
    from stepmeter.analysis.untrained import Untrained
    from stepmeter.store.snapshot import Snapshot

SUMMARY = "energy per training step, or of each step of an agent's trajectory"
EXAMPLE = "stepmeter energy demo --steps steps.jsonl --json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument("run", metavar="RUN", help="a run directory, its run.duckdb, or a run's name or id")
    steps = parser.add_mutually_exclusive_group()
    steps.add_argument("--steps", metavar="FILE", type=Path, help="a trajectory: its steps from a JSONL file")
    steps.add_argument("--genai", action="store_true", help="a trajectory: its steps from GenAI spans in the run")
    steps.add_argument("--spans", metavar="PATH", help="a trajectory: its steps from user spans, such as train/*")
    parser.add_argument(
        "--apportion",
        choices=("equal", "tokens", "device_time"),
        help="share the energy of steps that overlap, instead of dropping the later one",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")


def execute(args: argparse.Namespace) -> int:
    """Print the energies.

    Args:
        args: The parsed arguments.

    Returns:
        0, also where there is nothing to tell: the text says why.

    Raises:
        UsageError: The step file is wrong, or `--apportion` does not fit.
        RunNotFoundError: There is no such run.
        StoreError: The run can't be read.
        CheckFailedError: Parts do not add up to the whole.
    """
    from stepmeter.errors import UsageError
    from stepmeter.store.reader import find_run, open_run

    wants_trajectory = bool(args.steps or args.genai or args.spans)
    if args.apportion and not wants_trajectory:
        raise UsageError("--apportion is for trajectories; give --steps FILE, --genai or --spans PATH as well")
    with open_run(find_run(args.run)) as reader:
        snapshot = reader.snapshot()
        if wants_trajectory:
            found = _trajectory(args, snapshot)
            _write_trajectory(found, as_json=args.json)
            if args.spans and not found.steps and not args.json:
                _write_paths(snapshot)
        else:
            _write_training(snapshot, as_json=args.json)
    return 0


def _trajectory(args: argparse.Namespace, snapshot: Snapshot) -> Trajectory | Withheld:
    from dataclasses import replace

    from stepmeter.analysis.energy.joining import join
    from stepmeter.analysis.energy.repository import load_sources
    from stepmeter.analysis.energy.spans import genai_steps, user_steps
    from stepmeter.analysis.energy.steps import read_step_file
    from stepmeter.analysis.energy.trajectory import Withheld

    enclosing: tuple[DroppedStep, ...] = ()
    if args.steps:
        steps = read_step_file(args.steps)
    elif args.genai:
        steps, enclosing = genai_steps(snapshot)
    else:
        steps = user_steps(snapshot, args.spans)
    found = join(steps, load_sources(snapshot), args.apportion)
    if isinstance(found, Withheld):
        return found
    return replace(found, dropped_steps=(*enclosing, *found.dropped_steps))


def _write_trajectory(found: Trajectory | Withheld, *, as_json: bool) -> None:
    from stepmeter.report.energy_document import trajectory_document
    from stepmeter.report.energy_text import trajectory_text

    if as_json:
        print(json.dumps(trajectory_document(found)))
    else:
        sys.stdout.write(trajectory_text(found))


def _write_paths(snapshot: Snapshot) -> None:
    from stepmeter.analysis.queries import query

    paths = [path for (path,) in snapshot.rows(query("span_paths"))]
    print(f"Spans of the run have the paths {', '.join(paths)}." if paths else "The run has no span of its own.")


def _write_training(snapshot: Snapshot, *, as_json: bool) -> None:
    from stepmeter.analysis import untrained
    from stepmeter.analysis.energy.repository import load_faults
    from stepmeter.analysis.energy.training import analyze_training_energy
    from stepmeter.report.energy_document import training_document
    from stepmeter.report.energy_text import training_text

    attempts = snapshot.rows("SELECT max(attempt) FROM steps")
    found, _ = analyze_training_energy(snapshot, attempts[0][0])
    faults = load_faults(snapshot)
    if as_json:
        print(json.dumps({"energy": training_document(found, faults)}))
    else:
        sys.stdout.write(training_text(found, faults))
        if attempts[0][0] is None:
            _write_hint(untrained.load(snapshot))


def _write_hint(found: Untrained) -> None:
    if found.genai_calls:
        print("The run holds calls of models or tools; --genai prices them.")
    elif found.own_spans:
        print(
            f"The run holds spans of its own; --spans {shlex.quote(found.own_path or '*')} prices those of that path."
        )
