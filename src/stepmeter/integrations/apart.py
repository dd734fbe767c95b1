"""What every trainer's integration needs: failures that cost a step and nothing else, and work that is nobody's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

from stepmeter.capture.clock import monotonic_ns
from stepmeter.instrumentation.explicit import is_tracing
from stepmeter.instrumentation.instrumentor import Installation, installed


def told(kind: str, tell: Any, *args: Any) -> Any:
    """Tell an integration something; what fails in it costs the step in progress and nothing else.

    Args:
        kind: What is being told, for the report of a failure.
        tell: What to call.
        *args: Its arguments.

    Returns:
        What it returned; None after a failure.
    """
    try:
        return tell(*args)
    except Exception as error:
        installation = installed()
        if installation is not None:
            installation.boundaries.fault(f"trainer {kind}", error)
        return None


class Apart:
    """Work that is nobody's step: an evaluation, a prediction, another trainer inside a step or between two.

    Args:
        installation: What stands in torch.
    """

    __slots__ = ("_before", "_installation", "_mark", "_start_ns")

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        boundaries = installation.boundaries
        self._start_ns = monotonic_ns()
        if not boundaries.explicit:
            boundaries.finish(self._start_ns)  # as any evaluation ends a closable step
        else:
            boundaries.flush()
        if boundaries.memory is not None and is_tracing():
            boundaries.memory.closed(installation.recorder.active)
        self._mark = boundaries.timer.mark() if boundaries.timer is not None and is_tracing() else None
        self._before = (boundaries.owner, boundaries.fetching)
        boundaries.owner = 0

    def ends(self) -> None:
        """The step that was in progress goes on without the time between and without its peaks."""
        boundaries = self._installation.boundaries
        if installed() is not self._installation or not self._installation.recorder.recording:
            return
        boundaries.owner, boundaries.fetching = self._before
        if is_tracing():
            self._installation.recorder.active.away_ns += monotonic_ns() - self._start_ns
            if boundaries.timer is not None:
                boundaries.timer.away(self._start_ns, self._mark)
        if boundaries.memory is not None:
            boundaries.memory.dirty = True
            if is_tracing():
                boundaries.memory.opened()


def begin_apart() -> Apart | None:
    """Set aside what follows.

    Returns:
        What ends it; None where nothing is seen anyway.
    """
    installation = installed()
    if installation is None or installation.boundaries.owner != get_ident():
        return None
    return Apart(installation)


def set_apart(begin: Callable[[], Any], original: Any) -> Any:
    """A method of a trainer in which nobody's step is.

    Args:
        begin: Sets aside what follows; gives what ends that, or None where nothing is seen anyway.
        original: The method.

    Returns:
        What takes its place.
    """

    @functools.wraps(original)
    def apart(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = told("evaluation", begin)
        if scope is None:
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            told("evaluation", scope.ends)

    return apart
