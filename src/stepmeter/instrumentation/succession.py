"""Which thread trains: one at a time, and another once that is over or hands a step on."""

from __future__ import annotations

import threading
from threading import get_ident
from typing import Final

from stepmeter.capture.clock import monotonic_ns
from stepmeter.conventions.phases import OPTIMIZER, PHASES
from stepmeter.instrumentation.closing import FAILURE, NOBODY, ODD_FORWARD, Event
from stepmeter.instrumentation.marking import Marking
from stepmeter.instrumentation.undecided import Undecided

_OPTIMIZER: Final = PHASES.index(OPTIMIZER)

_IDLE_NS: Final = 1_000_000_000
"""Without an event for so long, a thread may lose its part to another that trains."""


class Succession(Marking):
    """Decides whether a thread that begins to train is the one whose steps count from now on."""

    __slots__ = ()

    def takes_over(self) -> bool:
        """Whether the calling thread, which is about to train, becomes the one whose steps count.

        It does when the other is gone, trains no more, or waits between two steps while this one makes the next of the
        same model. Nothing of the other's is touched before that is known: it may be at work.
        """
        if not self.owner or self.explicit or self.in_forward or self.in_backward:
            return False  # checkpointing runs forwards again on autograd's own threads
        thread, forward, known = self.elsewhere
        mine = thread == get_ident()
        over = self._is_idle() or not any(other.ident == self.owner for other in threading.enumerate())
        if not over and not (mine and (known or not self.recorder.steps) and self._is_between()):
            return False
        last_ns = self._last_ns()
        self.flush()
        if over:
            self.finish(last_ns or monotonic_ns())
            self.recorder.abort(self._capture)
            self._reset()
        self.owner = get_ident()
        self.elsewhere = NOBODY
        if mine and forward[1] >= last_ns:  # not one that ran while the other was still at work
            self.log.append(forward)
        return True

    def _is_idle(self) -> bool:
        """Whether the thread that trains has ended its loop, or has done nothing in it for a while."""
        return not (self.fetching or self.optimizers) and monotonic_ns() - self._last_ns() > _IDLE_NS

    def _last_ns(self) -> int:
        """When the newest event of the thread that trains had ended; 0 when it has given up or there is none."""
        last: Event = (self.log or self._capture.regions or [()])[-1]
        if last and last[0] == FAILURE:
            return 0
        region = last[1] if last and last[0] == ODD_FORWARD else last
        end_ns: int = region[2] if region else self.ended_ns
        return end_ns

    def _is_between(self) -> bool:
        """Whether the thread that trains has made an update, and nothing since but fetches."""
        if self.fetching or self.optimizers:
            return False
        codes = [event[0] for event in self.log if event[0] not in {Undecided.INPUT_WAIT, Undecided.COPY}]
        return codes[-1] == _OPTIMIZER if codes else self.cut is not None or not self._capture.regions
