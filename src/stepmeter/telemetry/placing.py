"""Which training step a span lies in, once the steps around it are known; on the drain thread."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable

from stepmeter.capture.span import Span
from stepmeter.capture.step import StepTimeBatch

HOLD_NS = 500_000_000
"""How long a span waits for the end of its step; forwards are known as training when their backward begins."""

_KNOWN_STEPS = 10_000


class Placing:
    """Finds the training step of spans that the step's context did not tell.

    Args:
        may_train: Whether a first step may come.

    Attributes:
        held: Spans that wait for their step, oldest first.
    """

    def __init__(self, may_train: Callable[[], bool] = lambda: False) -> None:
        self._may_train = may_train
        self.held: deque[tuple[int, Span]] = deque()
        self._ends_ns: list[int] = []
        self._steps: list[tuple[int, int]] = []  # (start in ns, number)

    def saw(self, batches: Iterable[StepTimeBatch]) -> None:
        """Take steps that completed.

        Args:
            batches: In the order of their ends.
        """
        for batch in batches:
            self._ends_ns.append(batch.end_ns)
            self._steps.append((batch.start_ns, batch.step))
        if len(self._ends_ns) > 2 * _KNOWN_STEPS:
            del self._ends_ns[:-_KNOWN_STEPS]
            del self._steps[:-_KNOWN_STEPS]

    def place(self, spans: Iterable[Span], now_ns: int, *, hold: bool) -> list[Span]:
        """Give spans their training step.

        Args:
            spans: That have finished, in the order of their ends.
            now_ns: Now, monotonic.
            hold: Whether a span may wait for the end of its step.

        Returns:
            Those that need not wait, earlier ones among them, with `training_step` set where they are in one.
        """
        if not self._ends_ns and not self.held and not self._may_train():
            return [*spans]
        ready = []
        for span in spans:
            if span.step is None or not span.parent_id:
                self.held.append((now_ns, span))
            else:
                ready.append(span)
        last_ns = self._ends_ns[-1] if self._ends_ns else 0
        while self.held:
            since_ns, span = self.held[0]
            if hold and span.end_ns > last_ns and now_ns - since_ns < HOLD_NS:
                break
            self.held.popleft()
            span.training_step = self._step_at(span.end_ns)
            ready.append(span)
        return ready

    def _step_at(self, at_ns: int) -> int | None:
        """The step that was in progress; what came before the first is in none, after the last in the next."""
        if not self._ends_ns:
            return None
        index = bisect_left(self._ends_ns, at_ns)
        if index == len(self._ends_ns):
            return self._steps[-1][1] + 1
        start_ns, step = self._steps[index]
        return step if start_ns <= at_ns or index else None
