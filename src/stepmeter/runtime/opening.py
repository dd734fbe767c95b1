"""Where a program's run lives, and what takes its telemetry."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.capture.identity import identity_from_environ
from stepmeter.capture.run import new_run_id, run_id_from_environ
from stepmeter.conventions import attributes as words
from stepmeter.conventions import environment, logs
from stepmeter.errors import UsageError
from stepmeter.runtime import session as sessions
from stepmeter.runtime.process import is_switched_off

if TYPE_CHECKING:
    from stepmeter.runtime.session import Session

_STREAM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\Z")
_NAME: Final = re.compile(r"[^/\0]+\Z")
_DESTINATIONS: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT",
    "OTEL_TRACES_EXPORTER",
)
LEFT_IN_ENVIRON: Final = (environment.RUN_ID, environment.RUN_NAME, environment.PROJECT, environment.ATTEMPT)
"""What `init` leaves in the environment for the processes that the program starts, until `finish`."""

LINES_FOLDER: Final = "otlp"
"""Folder of a run directory that holds OTLP-JSON lines."""


@dataclass(frozen=True, slots=True)
class Place:
    """A run's names and its directory.

    Attributes:
        project: Its project, or None.
        name: Its name.
        run_id: Its identity; a resumed run has that of its first start.
        stream: The stream of this process; None for the default one.
        directory: The run directory.
        rank: Rank of this process.
        launcher_attempt: Which start the launcher says that this is, from 0.
    """

    project: str | None
    name: str
    run_id: str
    stream: str | None
    directory: Path
    rank: int
    launcher_attempt: int

    @property
    def writer(self) -> str:
        """Name of this process among the writers of the run."""
        return f"{self.stream or 'default'}.rank{self.rank}"

    @property
    def lines(self) -> Path:
        """File of this process's OTLP-JSON lines."""
        return self.directory / LINES_FOLDER / f"{self.writer}.jsonl"

    def common(self, attempt: int) -> dict[str, Any]:
        """Attributes of every span, row and alert of this process.

        Args:
            attempt: Which start of the run this is.

        Returns:
            Attributes by key.
        """
        stream = {} if self.stream is None else {logs.STREAM.key: self.stream}
        return {words.ATTEMPT.key: attempt, **stream}


def choose_place(
    environ: MutableMapping[str, str],
    project: str | None,
    name: str | None,
    directory: str | os.PathLike[str] | None,
    stream: str | None,
) -> Place:
    """Settle the names of a run.

    Args:
        environ: The environment; what a launcher set there goes before the arguments. Names are left in it for the
            processes that this one starts.
        project: Asked for by the program.
        name: Asked for by the program.
        directory: Directory of runs, asked for by the program.
        stream: The stream.

    Returns:
        The place.

    Raises:
        UsageError: A name can't be that of a folder or stream.
    """
    if stream is not None and not _STREAM.match(stream):
        raise UsageError(f"stream {stream!r} is no name; letters, digits, - and _ make one")
    if name is not None and (not _NAME.match(name) or name in {".", ".."}):
        raise UsageError(f"run name {name!r} can't name a directory; leave out slashes")
    runs = Path(directory or environ.get(environment.DIR) or environment.DEFAULT_DIR).absolute()
    known = run_id_from_environ(environ)
    name = environ.get(environment.RUN_NAME) or name
    run_id = known or (_id_of(runs / name) if name else None) or new_run_id()
    name = name or run_id
    environ.setdefault(environment.RUN_ID, run_id)
    environ.setdefault(environment.RUN_NAME, name)
    if project is not None:
        environ.setdefault(environment.PROJECT, project)
    identity = identity_from_environ(environ)
    project = environ.get(environment.PROJECT) or project
    return Place(project, name, run_id, stream, runs / name, identity.rank, identity.attempt)


def begin_session(place: Place) -> tuple[Session, bool]:
    """Find the process's session or begin one.

    Args:
        place: The run.

    Returns:
        The session, and whether it was begun here. Without an OTLP endpoint and a tracer provider, everything goes to
        lines in the run directory.

    Raises:
        UsageError: Telemetry is switched off by the environment.
    """
    session = sessions.current_session()
    if session is not None:
        session.outbox.kept = session.outbox.kept or place.lines
        return session, False
    if is_switched_off(os.environ):
        raise UsageError("telemetry is switched off by the environment; unset STEPMETER_DISABLED and OTEL_SDK_DISABLED")
    if has_destination(os.environ):
        sessions.instrument()
        session = sessions.current_session()
    else:
        session = sessions.start(os.environ, own_providers=False)
        if session is not None:
            session.outbox.lines = place.lines
    if session is None:
        raise UsageError("this process only helps another one; call init() in the one that trains")
    session.outbox.kept = place.lines
    return session, True


def has_destination(environ: Mapping[str, str]) -> bool:
    """Whether somebody said where telemetry goes.

    Args:
        environ: The environment.

    Returns:
        True with an OTLP endpoint or an exporter in the environment, or a tracer provider of the program's.
    """
    from opentelemetry import trace

    if any(environ.get(name, "none") != "none" for name in _DESTINATIONS):
        return True
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def _id_of(directory: Path) -> str | None:
    from stepmeter.runtime.cursor import run_id_of

    return run_id_of(directory)
