"""Steps whose beginnings and ends the program, or its trainer, says itself."""

from __future__ import annotations

from threading import get_ident

from stepmeter.capture.step import StepCapture
from stepmeter.instrumentation.closing import FORWARD_INDEX, Closing


class Marking(Closing):
    """Ends steps where it is told to; from the first one on nothing else does."""

    __slots__ = ()

    def hand_over(self, now_ns: int) -> bool:
        """A trainer says from here on where steps are: what can be published is, the rest is nobody's.

        Args:
            now_ns: Now, monotonic.

        Returns:
            Whether the program has said so itself before; the trainer leaves `explicit` at that.
        """
        before = self.explicit
        self.finish(now_ns)
        self.give_up()
        self.explicit = True
        return before

    def give_up(self) -> None:
        """Discard the step in progress and all that waits for it; harmless when there is nothing."""
        self.recorder.abort(self.recorder.active)
        self._reset()

    def adopt(self) -> StepCapture:
        """What has been fetched and copied is training, a trainer says, whatever runs before its forward.

        Returns:
            The step that it belongs to.
        """
        self.flush()
        self._undecided.adopt(self._capture, first=False)
        return self._capture

    def step_begins(self, start_ns: int) -> StepCapture:
        """The program says that a step begins here; from the first time on it alone says where steps are.

        Args:
            start_ns: Now, monotonic.

        Returns:
            The capture of that step.
        """
        self.flush()
        if not self.explicit:
            if self.cut is not None:
                self._close_at(start_ns)
            self._capture.regions.clear()  # work without an update before the first step that the program marks
            self.explicit = True
        if self.owner:
            self.owner = get_ident()
        if self.memory is not None and self.memory.dirty:
            self.memory.opened()
        return self._capture

    def step_ended(self, capture: StepCapture, end_ns: int, start_ns: int | None, completed: bool) -> None:
        """The program says that a step ends here.

        Args:
            capture: The step; one that is detached already is left alone.
            end_ns: Now, monotonic.
            start_ns: Where the program said that it begins; work before that is the step's too. None = it did not say.
            completed: Whether to publish it.
        """
        self.flush()
        if capture.detached:
            return
        self.explicit = True
        self.cut = None
        self.optimizers.clear()
        if not completed:
            self._undecided.waiting.clear()
            self._begin(self.recorder.abort(capture))
            return
        undecided = self._undecided
        undecided.adopt(capture, first=False)
        capture.regions += undecided.take_forwards(start_ns or 0)
        self._before_publication(capture, any(region[0] == FORWARD_INDEX for region in capture.regions), None)
        starts_ns = [region[1] for region in capture.regions]
        first_ns = min(starts_ns, default=end_ns)
        self._begin(self.recorder.complete(capture, end_ns, min(first_ns, start_ns or first_ns)))
