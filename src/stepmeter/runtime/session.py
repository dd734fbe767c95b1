"""A training process's session: patches on torch, the pipeline once there is something to send, a bounded end."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from stepmeter.capture.clock import read_anchor
from stepmeter.capture.identity import identity_from_environ
from stepmeter.capture.run import ensure_run_id
from stepmeter.capture.step import Recorder, use_recorder
from stepmeter.conventions import environment
from stepmeter.runtime.process import is_helper, is_switched_off

if TYPE_CHECKING:
    from stepmeter.telemetry.pipeline import Pipeline

EXIT_LIMIT_S = 2.0
"""What exit may take beyond the program's own, whatever a backend does."""

_CANCEL_S = 0.2


class Session:
    """What stepmeter does in one process.

    Args:
        environ: The process's environment.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        # here, at start, and not on the training thread when the first step completes
        from stepmeter.telemetry.guard import Guard
        from stepmeter.telemetry.pipeline import Pipeline
        from stepmeter.telemetry.setup import BoundedExit

        self._pid = os.getpid()
        self._anchor = read_anchor()
        self._guard = Guard(strict=environment.is_true(environ, environment.STRICT))
        self._make_pipeline = Pipeline
        self._pipeline: Pipeline | None = None
        self._exit = BoundedExit(self._guard)
        self._end = threading.Event()
        self._ended = threading.Event()
        self.recorder = Recorder(identity_from_environ(environ))
        self.recorder.on_fault = self._guard.fault
        self.recorder.on_publish = self._start_pipeline
        ensure_run_id(environ)

    def begin(self) -> None:
        """Watch for torch and arrange the end."""
        from stepmeter.instrumentation.instrumentor import hook_torch

        self._exit.take_over()
        use_recorder(self.recorder)
        hook_torch(self.recorder)
        # made now: at exit newer Pythons refuse to start a thread
        threading.Thread(target=self._close_when_told, name="stepmeter-exit", daemon=True).start()
        atexit.register(self.end)

    def end(self) -> None:
        """Publish the last step, send what waits, and return within `EXIT_LIMIT_S`."""
        atexit.unregister(self.end)
        if os.getpid() != self._pid or self._end.is_set():
            return
        from stepmeter.instrumentation.instrumentor import finish

        with self._guard.over("finishing the last step"):
            finish(self.recorder)
        self._end.set()
        if not self._ended.wait(EXIT_LIMIT_S - _CANCEL_S):
            self._exit.cancel()
            self._ended.wait(_CANCEL_S)

    def _start_pipeline(self) -> None:
        """Runs on the training thread, at the first completed step only."""
        self.recorder.on_publish = None
        with self._guard.over("starting telemetry"):
            self._pipeline = self._make_pipeline(self.recorder, self._anchor, self._guard, _outcome)
            self._pipeline.start()

    def _close_when_told(self) -> None:
        self._end.wait()
        try:
            if self._pipeline is not None:
                undelivered = self._pipeline.close(time.monotonic() + EXIT_LIMIT_S - 2 * _CANCEL_S)
                if undelivered:
                    self._guard.say_once("undelivered", f"not delivered at exit: {undelivered} spans and metrics")
            self._exit.shut_down()
        finally:
            self._ended.set()


_session: Session | None = None


def start(environ: MutableMapping[str, str]) -> Session | None:
    """Start stepmeter in this process; harmless when it has been started.

    Args:
        environ: The process's environment.

    Returns:
        The session; None where stepmeter is switched off or the process only helps another one.
    """
    global _session  # noqa: PLW0603 - there is one session a process
    if is_switched_off(environ) or is_helper(sys.orig_argv):
        return None
    if _session is None:
        _session = Session(environ)
        _session.begin()
    return _session


def stop() -> None:
    """Restore everything that was patched and end the session."""
    global _session
    from stepmeter.instrumentation.instrumentor import uninstall

    if _session is not None:
        session, _session = _session, None
        uninstall()
        session.end()
        use_recorder(None)


def _outcome() -> str:
    """How the program went, as far as an exit hook can know; `sys.exit(3)` leaves no trace here."""
    kind = getattr(sys, "last_type", None)
    if kind is None:
        return "completed"
    return "interrupted" if issubclass(kind, KeyboardInterrupt) else "failed"
