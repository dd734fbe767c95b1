"""Runs stepmeter and programs as a user would: as processes, in a directory of their own."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
TINY = str(PROGRAMS / "tiny.py")
BIN = Path(sys.executable).parent
_OURS = ("OTEL_", "STEPMETER_", "TORCHELASTIC_", "RANK", "WORLD_SIZE", "LOCAL_RANK")


def clean_environ(**changes):
    """The environment without what would steer telemetry, and with these changes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
    return {**kept, "OMP_NUM_THREADS": "1", **changes}


def stepmeter(*words, cwd, timeout=100, **environ):
    """Run the command line and return the finished process with its output as text."""
    return subprocess.run(
        [sys.executable, "-m", "stepmeter.cli", *map(str, words)],
        cwd=cwd,
        env=clean_environ(**environ),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def start_stepmeter(*words, cwd, **environ):
    """Start the command line and return the running process."""
    return subprocess.Popen(
        [sys.executable, "-m", "stepmeter.cli", *map(str, words)],
        cwd=cwd,
        env=clean_environ(**environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - a shell may have had it ignored
    )


def free_port():
    """A port of this host on which nobody listens at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def query(run, sql):
    """Ask a stored run; rows as tuples."""
    from stepmeter.store.reader import open_run

    with open_run(Path(run)) as reader:
        return reader.snapshot().rows(sql)
