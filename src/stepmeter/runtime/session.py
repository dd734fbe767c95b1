"""A training process's session: patches on torch, the pipeline once there is something to send, a bounded end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from stepmeter.capture import recording
from stepmeter.capture.clock import read_anchor
from stepmeter.capture.ending import use_recorder
from stepmeter.capture.identity import identity_from_environ
from stepmeter.capture.outbox import Outbox
from stepmeter.capture.recording import SpanRecorder
from stepmeter.capture.run import ensure_run_id
from stepmeter.capture.step import Recorder
from stepmeter.conventions import environment
from stepmeter.runtime.background import Background, load_ahead
from stepmeter.runtime.process import is_helper, is_launcher, is_switched_off

if TYPE_CHECKING:
    from stepmeter.telemetry.kept import KeptRequests
    from stepmeter.telemetry.pipeline import Pipeline

EXIT_LIMIT_S = 1.3
"""What exit may take beyond the program's own, whatever a backend does."""

_CANCEL_S = 0.15


class Session:
    """What stepmeter does in one process.

    Args:
        environ: The process's environment.
        own_providers: Whether the OpenTelemetry providers were configured for the program, so that their end is ours
            to bound; those that a program made itself are left to it.

    Attributes:
        recorder: Steps of this process.
        outbox: Spans, rows and alerts of this process.
        pid: The process; a forked child has no session.
    """

    def __init__(self, environ: MutableMapping[str, str], *, own_providers: bool) -> None:
        # here, at start, and not on the training thread when the first step completes
        from stepmeter.telemetry.guard import Guard, say
        from stepmeter.telemetry.pipeline import Pipeline
        from stepmeter.telemetry.setup import BoundedExit

        self.pid = os.getpid()
        self._anchor = read_anchor()
        self._guard = Guard(strict=environment.is_true(environ, environment.STRICT))
        self._make_pipeline = Pipeline
        self._say = say
        self._pipeline: Pipeline | None = None
        self._background: Background | None = None
        self._providers = BoundedExit(self._guard) if own_providers else None
        self._end = threading.Event()
        self._ended = threading.Event()
        self._starting = threading.Lock()
        self.outbox = Outbox(SpanRecorder(self._anchor))
        self.recorder = Recorder(identity_from_environ(environ))
        self.recorder.on_fault = self._guard.fault
        self.recorder.on_armed = self.recorder.on_publish = self._start_pipeline
        self.outbox.spans.run_id = ensure_run_id(environ)

    def begin(self) -> None:
        """Watch for torch and arrange the end."""
        from stepmeter.instrumentation.instrumentor import hook_torch
        from stepmeter.integrations import hook_trainers

        with self._guard.over("loading what our threads need"):
            load_ahead()
        if self._providers is not None:
            self._providers.take_over()
        use_recorder(self.recorder)
        spans = self.outbox.spans
        spans.recording, spans.warn, spans.on_first = True, self._say, self._start_pipeline
        recording.use(spans)
        hook_torch(self.recorder)
        hook_trainers(self.recorder)
        # made now: at exit newer Pythons refuse to start a thread
        threading.Thread(target=self._close_when_told, name="stepmeter-exit", daemon=True).start()
        atexit.register(self.end)

    def end(self) -> None:
        """Publish the last step, send what waits, and return within `EXIT_LIMIT_S`."""
        atexit.unregister(self.end)
        if os.getpid() != self.pid or self._end.is_set():
            return
        from stepmeter.instrumentation.instrumentor import finish

        with self._guard.over("finishing the last step"):
            finish(self.recorder)
        if self._pipeline is None and not self.outbox.empty:
            self._start_pipeline()
        self._end.set()
        if not self._ended.wait(EXIT_LIMIT_S - _CANCEL_S) and self._providers is not None:
            self._providers.cancel()
            self._ended.wait(_CANCEL_S)

    def release(self) -> None:
        """End without shutting the providers down, and give back what was taken over from them."""
        providers, self._providers = self._providers, None
        self.end()
        if providers is not None:
            providers.give_back()
        if self._pipeline is not None:
            self._pipeline.release()
        recording.use(SpanRecorder(self._anchor))

    def flush(self, limit_s: float) -> bool:
        """Send what has been recorded, and wait until it has been taken.

        Args:
            limit_s: How long to wait at most, in s.

        Returns:
            Whether all of it was taken; True when there was nothing.
        """
        if self._pipeline is None:
            if self.outbox.empty or os.getpid() != self.pid:
                return True
            self._start_pipeline()
        return self._pipeline is None or self._pipeline.flush(time.monotonic() + limit_s)

    def _start_pipeline(self) -> None:
        """Runs on the program's thread, once: when an optimizer is made, or else when a step or a span completes."""
        self.recorder.on_armed = self.recorder.on_publish = self.outbox.spans.on_first = None
        with self._starting:
            if self._pipeline is not None or self._end.is_set():
                return
            self._start()

    def _start(self) -> None:
        with self._guard.over("starting telemetry"):
            background = Background(self.recorder, os.environ, self._guard.fault)
            self._pipeline = self._make_pipeline(
                self.recorder,
                self._anchor,
                self._guard,
                _outcome,
                background.readings,
                lambda: background.cpu_time_s,
                self.outbox,
            )
            self._pipeline.start()
            self._background = background
            background.start()

    def _close_when_told(self) -> None:
        self._end.wait()
        try:
            if self._background is not None:
                self._background.stop()
            if self._pipeline is not None:
                undelivered = self._pipeline.close(time.monotonic() + EXIT_LIMIT_S - 2 * _CANCEL_S)
                self._say_undelivered(undelivered, self._pipeline.kept)
            if self._providers is not None:
                self._providers.shut_down()
        finally:
            self._ended.set()

    def _say_undelivered(self, lost: int, kept: KeptRequests | None) -> None:
        parts = [f"{lost} spans and metric requests are lost"] if lost else []
        if kept is not None and kept.items:
            taken_in = environment.RUN_DIR in os.environ
            where = f"until `stepmeter run` ends, in {kept.path}" if taken_in else f"for `stepmeter ingest {kept.path}`"
            parts.append(f"{kept.items} spans are kept, {where}")
        if parts:
            self._guard.say_once("undelivered", f"not delivered: {'; '.join(parts)}")


_session: Session | None = None


def start(environ: MutableMapping[str, str], *, own_providers: bool = True) -> Session | None:
    """Start stepmeter in this process; harmless when it has been started.

    Args:
        environ: The process's environment.
        own_providers: Whether the OpenTelemetry providers were configured for the program.

    Returns:
        The session; None where stepmeter is switched off or the process only helps another one.
    """
    global _session  # noqa: PLW0603 - there is one session a process
    if is_switched_off(environ) or is_helper(sys.orig_argv) or is_launcher(sys.orig_argv):
        return None
    if current_session() is None:  # none yet, or that of the process which forked this one
        _session = Session(environ, own_providers=own_providers)
        _session.begin()
    return _session


def current_session() -> Session | None:
    """The session of this process.

    Returns:
        The session; None where there is none, and in a forked child.
    """
    return _session if _session is not None and _session.pid == os.getpid() else None


def instrument() -> None:
    """Start stepmeter in this process from code; what `opentelemetry-instrument` and `stepmeter run` do without.

    A tracer provider that is there already is used; where there is none, the SDK is configured from the environment.
    To be called before the training begins; harmless when stepmeter runs already or is switched off.
    """
    if is_switched_off(os.environ) or current_session() is not None:
        return
    from stepmeter.runtime.distro import StepmeterDistro
    from stepmeter.telemetry.setup import configure_sdk

    StepmeterDistro().configure()
    start(os.environ, own_providers=configure_sdk())


def stop() -> None:
    """Restore everything that was patched and end the session."""
    global _session
    from stepmeter.instrumentation.instrumentor import uninstall
    from stepmeter.integrations import unhook_trainers

    if _session is not None:
        session, _session = _session, None
        session.release()
        unhook_trainers()
        uninstall()
        use_recorder(None)


def _outcome() -> str:
    """How the program went, as far as an exit hook can know; `sys.exit(3)` leaves no trace here."""
    kind = getattr(sys, "last_type", None)
    if kind is None:
        return "completed"
    return "interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"
