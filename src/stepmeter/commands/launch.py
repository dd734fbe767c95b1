"""How `stepmeter run` starts processes, and how it ends them."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from stepmeter.capture.run import new_run_id
from stepmeter.commands.beside import Beside
from stepmeter.commands.destinations import forward_arguments
from stepmeter.conventions import environment
from stepmeter.errors import StepmeterError

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_DRAIN_LIMIT_S = 60.0


@dataclass(slots=True)
class Collector:
    """A collector process of ours.

    Attributes:
        process: The process.
        grpc: Where it takes OTLP over gRPC, `host:port`.
        run_id: The run it was started for.
        run_name: Its name.
        run_dir: Its directory.
        log: What it says, as a file.
        address: Holds its port until it has taken it itself.
        blamed: Whether its end has been told.
    """

    process: subprocess.Popen[bytes]
    grpc: str
    run_id: str
    run_name: str
    run_dir: Path
    log: IO[bytes]
    address: socket.socket
    blamed: bool = False


def start_collector(directory: Path, name: str, environ: Mapping[str, str]) -> Collector:
    """Start a collector and wait until it can be reached.

    Args:
        directory: Directory of runs.
        name: Name of the run.
        environ: As for `begin_collector`.

    Returns:
        The collector.

    Raises:
        StepmeterError: It did not start.
    """
    collector = begin_collector(directory, name, environ)
    assert collector.process.stdout is not None  # noqa: S101 - for the type checker
    if collector.process.stdout.readline():
        return collector
    with collector.address, collector.log, collector.process:
        collector.process.kill()
        collector.process.wait()
        raise StepmeterError(f"the collector did not start: {_last_line(collector.log)}")


def begin_collector(directory: Path, name: str, environ: Mapping[str, str], config: Path | None = None) -> Collector:
    """Start a collector on a loopback port, and do not wait: what it is sent meanwhile is sent again by the sender.

    It leads a session of its own, so that Ctrl-C does not reach it, and ends when our end of its stdin closes, so
    that it never outlives us. What commonly keeps one from starting is looked at here.

    Args:
        directory: Directory of runs.
        name: Name of the run.
        environ: The environment, for a run id that a launcher has set, and for the OTLP endpoint that the user
            meant: what arrives is passed on there.
        config: Its configuration file; None = the built-in one.

    Returns:
        The collector; the run's directory is there.

    Raises:
        StepmeterError: It would not start.
    """
    run_id = environ.get(environment.RUN_ID) or new_run_id()
    run_dir = _claim(directory, run_id, name, environ, config)
    address = socket.socket()
    # bound, not listening: on Linux the collector may bind and listen beside it, and nobody else takes the port
    address.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    address.bind(("127.0.0.1", 0))
    grpc = f"127.0.0.1:{address.getsockname()[1]}"
    listen = ["--grpc", grpc, "--http", "127.0.0.1:0", "--json", "--until-stdin-closes"]
    command = [sys.executable, "-m", "stepmeter.cli", "collect", "--dir", str(directory), *listen]
    command += [*forward_arguments(environ), *(["--config", str(config)] if config else [])]
    log = tempfile.TemporaryFile()  # noqa: SIM115 - read when the collector has ended
    process = subprocess.Popen(
        [*command, "--run", run_id, "--run-name", name],
        env=dict(environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )
    return Collector(process, grpc, run_id, name, run_dir, log, address)


def _claim(directory: Path, run_id: str, name: str, environ: Mapping[str, str], config: Path | None) -> Path:
    from stepmeter.store.segments import claim_run

    if config is not None:
        from stepmeter.collector.config import read_config

        read_config(config, environ)
    try:
        return claim_run(directory, run_id, name)
    except OSError as error:
        problem = error.strerror or str(error)
        raise StepmeterError(f"can't write to {directory}: {problem}; choose another with --dir") from error


def blame_if_ended(collector: Collector) -> None:
    """Say so, once, when a collector has ended by itself.

    Args:
        collector: The collector.
    """
    if not collector.blamed and collector.process.poll() is not None:
        collector.blamed = True
        code = collector.process.returncode
        why = f"{signal.Signals(-code).name} ended it" if code < 0 else _last_line(collector.log)
        print(f"stepmeter: the collector failed: {why}", file=sys.stderr)


def stop_collector(collector: Collector) -> None:
    """Let a collector write down what it has, and wait for it.

    Args:
        collector: The collector.
    """
    process = collector.process
    with collector.address, collector.log, process:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        process.stdin.close()
        try:
            process.wait(_DRAIN_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            collector.blamed = True
            print(f"stepmeter: the collector took over {_DRAIN_LIMIT_S:.0f} s to end and was killed", file=sys.stderr)
        if process.returncode != 0:
            blame_if_ended(collector)


def instrumented(environ: Mapping[str, str], collector: Collector | None = None) -> dict[str, str]:
    """The environment in which a command is instrumented without a change to it.

    Args:
        environ: The environment to start from.
        collector: Where telemetry goes; None leaves the endpoint to the user's own settings.

    Returns:
        A new environment: OpenTelemetry's auto-instrumentation on PYTHONPATH, ours chosen as its distribution.
    """
    made = dict(environ)
    made["PYTHONPATH"] = os.pathsep.join([_auto_instrumentation(), *filter(None, [environ.get("PYTHONPATH")])])
    made.setdefault("OTEL_PYTHON_DISTRO", "stepmeter")
    made.setdefault("OTEL_PYTHON_CONFIGURATOR", "stepmeter")
    if collector is not None:
        made[environment.RUN_ID] = collector.run_id
        made[environment.RUN_NAME] = collector.run_name
        made[environment.RUN_DIR] = str(collector.run_dir.absolute())
        made["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://{collector.grpc}"
        made["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
        made["OTEL_EXPORTER_OTLP_INSECURE"] = "true"
        made.pop("OTEL_EXPORTER_OTLP_HEADERS", None)
        for signal_name in ("TRACES", "METRICS", "LOGS"):
            for suffix in ("ENDPOINT", "PROTOCOL", "HEADERS", "INSECURE"):
                made.pop(f"OTEL_EXPORTER_OTLP_{signal_name}_{suffix}", None)
        for signal_name in ("TRACES", "METRICS"):
            made[f"OTEL_{signal_name}_EXPORTER"] = _with_otlp(environ.get(f"OTEL_{signal_name}_EXPORTER", ""))
    return made


def run_command(
    command: Sequence[str],
    environ: Mapping[str, str],
    beside: Beside | None = None,
    collector: Collector | None = None,
) -> int:
    """Run a command to its end and pass signals on to it.

    A signal from the terminal has reached the command already, since it is of our process group; only one that was
    sent to us alone is passed on.

    Args:
        command: Program and arguments.
        environ: Its environment.
        beside: What goes on beside it.
        collector: The collector that it sends to; its end is told when it comes.

    Returns:
        Its exit code; 128 + n when signal n ended it.
    """
    waited_for = {*_PASSED_ON, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited_for)
    try:
        process = subprocess.Popen(
            command,
            env=dict(environ),
            # this process has one thread, and the command must not inherit the blocked signals
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before),  # noqa: PLW1509
            **(beside.streams if beside else {}),
        )
        if beside:
            beside.begin(process)
        _wait(process, waited_for, collector)
        if beside:
            beside.end()
    finally:
        # a Ctrl-C that came while the command was ending must not interrupt the verdict
        while signal.sigtimedwait(waited_for, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if process.returncode < 0:
        _say_what_ended(-process.returncode)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _say_what_ended(number: int) -> None:
    """As a shell does of its own commands, and can't of this one: a program that the kernel killed says nothing."""
    if number not in {signal.SIGINT, signal.SIGPIPE}:
        name = signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"
        print(f"stepmeter: {name} ended the command", file=sys.stderr)


def _wait(
    process: subprocess.Popen[bytes], waited_for: Collection[signal.Signals], collector: Collector | None
) -> None:
    while process.poll() is None:
        received = signal.sigwaitinfo(waited_for)
        if received.si_signo == signal.SIGCHLD:
            if collector is not None:
                blame_if_ended(collector)
        elif not _from_terminal(received):
            process.send_signal(received.si_signo)


def _from_terminal(received: signal.struct_siginfo) -> bool:
    return received.si_pid == 0


def _auto_instrumentation() -> str:
    """The folder whose sitecustomize starts OpenTelemetry's auto-instrumentation."""
    spec = importlib.util.find_spec("opentelemetry.instrumentation.auto_instrumentation")
    if spec is None or spec.origin is None:
        raise StepmeterError(
            "opentelemetry-instrumentation is not installed; `pip install --force-reinstall stepmeter`"
        )
    return str(Path(spec.origin).parent)


def _with_otlp(exporters: str) -> str:
    names = [name.strip() for name in exporters.split(",") if name.strip() not in ("", "none")]
    return ",".join(names if "otlp" in names else [*names, "otlp"])


def _last_line(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("stepmeter: ") if lines else "it said nothing"
