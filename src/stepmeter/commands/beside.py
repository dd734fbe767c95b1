"""What `stepmeter run` does while its command runs: get ready for the verdict, or show the run live."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any, Protocol

from stepmeter.errors import UsageError


class Beside(Protocol):
    """Goes on beside the command."""

    @property
    def streams(self) -> dict[str, Any]:
        """The command's standard streams, as `subprocess.Popen` takes them."""

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """The command has started."""

    def end(self) -> None:
        """The command has ended."""


class Readying:
    """Loads what the verdict needs, so that it comes at once when the command ends."""

    streams: dict[str, Any] = {}  # noqa: RUF012 - the command has our own streams

    def begin(self, _: subprocess.Popen[bytes]) -> None:
        """Start loading; a thread of no consequence if the command is quicker."""
        threading.Thread(target=_load_report, daemon=True).start()

    def end(self) -> None:
        """Nothing is to be ended."""


class Live:
    """Draws the run on stderr, and prints above the picture what the command writes to the same terminal.

    Args:
        run_dir: The run's directory.
    """

    def __init__(self, run_dir: Path) -> None:
        from rich.console import Console

        self._run_dir = run_dir
        self._console = Console(stderr=True, highlight=False)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def streams(self) -> dict[str, Any]:
        """Pipes for what would otherwise run into the picture."""
        on_terminal = subprocess.PIPE if sys.stdout.isatty() else None
        return {"stdout": on_terminal, "stderr": subprocess.PIPE}

    def begin(self, process: subprocess.Popen[bytes]) -> None:
        """Start drawing and printing."""
        for stream in filter(None, (process.stdout, process.stderr)):
            self._start(self._print, stream)
        self._start(self._draw)

    def end(self) -> None:
        """Draw a last time and print the rest."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _start(self, target: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _draw(self) -> None:
        from stepmeter.live.terminal import watch

        watch(self._run_dir, self._stop, self._console)

    def _print(self, stream: IO[bytes]) -> None:
        from rich.text import Text

        for line in stream:
            # of a progress bar that rewrites its line, the last state
            shown = line.decode(errors="replace").rstrip("\r\n").rpartition("\r")[2]
            self._console.print(Text.from_ansi(shown), soft_wrap=True)


def require_terminal() -> None:
    """Make sure that there is something to draw on.

    Raises:
        UsageError: stderr is no terminal.
    """
    if not sys.stderr.isatty():
        raise UsageError("--live draws on stderr, which is no terminal; leave it out or use `stepmeter watch RUN`")


def unbuffered(environ: dict[str, str]) -> dict[str, str]:
    """Let a Python program write each line at once although its stdout is a pipe.

    Args:
        environ: Its environment.

    Returns:
        The same, with PYTHONUNBUFFERED set unless the user set it.
    """
    return {"PYTHONUNBUFFERED": "1", **environ}


def _load_report() -> None:
    os.nice(5)  # of this thread only, on Linux: the command goes first
    import stepmeter.report.summary  # noqa: F401
