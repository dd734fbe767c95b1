"""`stepmeter run`: a collector, the instrumented command, and the verdict."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from stepmeter.conventions import environment
from stepmeter.errors import StepmeterError, UsageError

if TYPE_CHECKING:
    from stepmeter.analysis.untrained import Untrained
    from stepmeter.commands.launch import Collector

_PLAIN_WIDTH = 100
SUMMARY = "run a training command under stepmeter and print where its time went"
EXAMPLE = "stepmeter run train.py --epochs 3\n  stepmeter run --name big -- torchrun --nproc-per-node=2 train.py"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    options = "[--dir D] [--name N] [--config F] [--live | --quiet] [--html] [--no-collector]"
    parser.usage = f"stepmeter run {options} [--] CMD [ARG ...]"
    parser.add_argument("--dir", help="directory of runs (default: $STEPMETER_DIR or ./stepmeter-runs)")
    parser.add_argument("--name", help="name of the run (default: the script's or the module's name)")
    parser.add_argument("--config", type=Path, metavar="F", help="the collector's configuration (default: built in)")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--live", action="store_true", help="show the run in the terminal while it goes on")
    shown.add_argument("--quiet", action="store_true", help="no verdict on stderr; files are written all the same")
    parser.add_argument("--html", action="store_true", help="write final_summary.html into the run's directory too")
    parser.add_argument(
        "--no-collector",
        action="store_true",
        help="send to the configured OTLP endpoint only; no store, no verdict",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="a .py file or any command, with its arguments")


def execute(arguments: argparse.Namespace) -> int:
    """Run the command.

    Args:
        arguments: Those declared by `configure`.

    Returns:
        The command's own exit code; 128 + n when signal n ended it.

    Raises:
        UsageError: There is no such command or script, or options do not fit together.
    """
    from stepmeter.commands import launch
    from stepmeter.commands.beside import require_terminal

    command = resolve(arguments.command)
    if arguments.no_collector:
        _require_no_store(arguments)
    if arguments.live:
        require_terminal()
    environ = dict(os.environ)
    if environment.is_true(environ, environment.DISABLED) or environment.is_true(environ, "OTEL_SDK_DISABLED"):
        return launch.run_command(command, environ)
    if arguments.no_collector:
        named = {environment.RUN_NAME: arguments.name, environment.DIR: arguments.dir}
        environ |= {key: value for key, value in named.items() if value}
        return launch.run_command(command, launch.instrumented(environ))
    directory = Path(arguments.dir or environ.get(environment.DIR) or environment.DEFAULT_DIR)
    name = arguments.name or default_name(arguments.command)
    try:
        collector = launch.begin_collector(directory, name, environ, arguments.config)
    except StepmeterError as error:
        print(f"stepmeter: {error}; the command runs without telemetry", file=sys.stderr)
        return launch.run_command(command, environ)
    code = _collected(command, environ, collector, live=arguments.live)
    _conclude(collector.run_dir, arguments, alone=environment.RUN_ID not in environ)
    return code


def resolve(words: Sequence[str]) -> list[str]:
    """Turn what was typed into a command line.

    Args:
        words: The command as typed, a leading `--` included or not.

    Returns:
        The command with its program's full path; a `.py` file runs with this Python.

    Raises:
        UsageError: Nothing was typed, or there is no such script or program.
    """
    command = list(words[1:] if words[:1] == ["--"] else words)
    if not command:
        raise UsageError("no command to run; for example `stepmeter run train.py`")
    program = command[0]
    if program.endswith(".py"):
        if not Path(program).is_file():
            raise UsageError(f"no script {program!r} in {Path.cwd()}; give the path of an existing .py file")
        return [sys.executable, *command]
    found = shutil.which(program)
    if found is None:
        raise UsageError(f"no program {program!r} on PATH; give a .py file or a command that the shell would find")
    return [found, *command[1:]]


def default_name(words: Sequence[str]) -> str:
    """Name a run after what it runs.

    Args:
        words: The command as typed.

    Returns:
        The first script's name without its ending, else the module's after `-m`, else the program's name.
    """
    command = [word for word in words if word != "--"]
    script = next((word for word in command if word.endswith(".py")), None)
    if script is None and "-m" in command[:-1]:
        return command[command.index("-m") + 1]
    return Path(script or command[0]).stem


def _require_no_store(arguments: argparse.Namespace) -> None:
    for option in ("config", "live", "html"):
        if getattr(arguments, option):
            raise UsageError(f"--{option} needs the collector's store; leave out --no-collector, or --{option}")


def _collected(command: Sequence[str], environ: Mapping[str, str], collector: Collector, *, live: bool) -> int:
    """Run a command that sends to a collector, and end the collector; gives the command's exit code."""
    from stepmeter.commands import launch
    from stepmeter.commands.attempts import take_part
    from stepmeter.commands.beside import Live, Readying, unbuffered

    try:
        beside = Live(collector.run_dir) if live else Readying()
        with take_part(collector.run_dir) if environment.RUN_ID in environ else nullcontext() as attempt:
            child_environ = launch.instrumented(environ, collector)
            if attempt is not None:
                child_environ.setdefault(environment.ATTEMPT, str(attempt))
            if live:
                child_environ = unbuffered(child_environ)
            return launch.run_command(command, child_environ, beside, collector)
    finally:
        launch.stop_collector(collector)


def _conclude(run_dir: Path, arguments: argparse.Namespace, *, alone: bool) -> None:
    """Say the verdict; seal a run to which no other node and no later attempt writes."""
    from stepmeter.commands.kept import take_in

    complete = take_in(run_dir)
    trained = _report(run_dir, quiet=arguments.quiet, html=arguments.html)
    if trained and complete and alone:
        _seal(run_dir)


def _report(run_dir: Path, *, quiet: bool, html: bool) -> bool:
    """Write and print the verdict; whether there was a step to judge."""
    from stepmeter.report.summary import write_files

    try:
        summary = write_files(run_dir)
        if html:
            from stepmeter.report.html import write_html

            write_html(summary, run_dir / "final_summary.html")
    except (StepmeterError, OSError) as error:
        print(f"stepmeter: no verdict: {error}", file=sys.stderr)
        return False
    trained = bool(summary.document["step_time"]["metadata"]["training_total_steps"])
    if quiet:
        return trained
    on_terminal = sys.stderr.isatty()
    width = shutil.get_terminal_size().columns if on_terminal else _PLAIN_WIDTH
    print(
        f"\n{summary.text(width, color=on_terminal)}\n{_next_steps(run_dir, summary.analysis.untrained)}",
        file=sys.stderr,
    )
    return trained


def _seal(run_dir: Path) -> None:
    from stepmeter.store.seal import seal

    try:
        seal(run_dir)
    except (StepmeterError, OSError) as error:
        print(f"stepmeter: the run stays as segments: {error}", file=sys.stderr)


def _next_steps(run_dir: Path, untrained: Untrained | None) -> str:
    shown = os.path.relpath(run_dir)
    question = "SELECT step, traced_cpu_ns / 1e6 AS traced_ms FROM steps ORDER BY 2 DESC LIMIT 5"
    asked = [f'stepmeter sql {shown} "{question}"']
    if untrained is not None:
        asked = [command for command, _ in untrained.questions(shown)] or ["stepmeter doctor"]
    lines = "\n".join(f"  {command}" for command in (f"stepmeter summary {shown}", *asked))
    return f"The run is in {shown} (run.duckdb opens in any DuckDB, final_summary.json is for programs). Next:\n{lines}"
