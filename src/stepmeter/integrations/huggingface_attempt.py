"""One attempt of a Hugging Face trainer's loop: which of its work belongs to steps, and where they begin and end.

Outside of the collection of batches and of the step itself the training thread is at rest, so that nobody's fetches,
copies and forwards are seen: what a trainer does beside training consumes its loaders directly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import get_ident
from typing import Any, Final

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.region import Region
from stepmeter.capture.step import StepCapture
from stepmeter.instrumentation.explicit import TimedIterator, TracedStep
from stepmeter.instrumentation.instrumentor import Installation, installed
from stepmeter.instrumentation.undecided import new_loader
from stepmeter.integrations.apart import told
from stepmeter.telemetry.guard import say

BYPASSED: Final = (
    "the Trainer's get_batch_samples is overridden: its steps are measured without input wait and without the copies"
    " made before them; call super().get_batch_samples() in it"
)
_said: set[str] = set()


class Attempt:
    """Owns the steps of one call of a trainer's inner training loop.

    Args:
        trainer: The trainer.
        installation: What stands in torch.

    Attributes:
        trainer: The trainer; events of others are not this attempt's.
        timed: What times its fetches, kept from one group to the next.
        omits: Whether the group that is collected next is nobody's: its first fetch skips what a checkpoint has seen.
    """

    __slots__ = (
        "_before",
        "_capture",
        "_collected",
        "_installation",
        "_left",
        "_loader",
        "_step",
        "_thread",
        "omits",
        "timed",
        "trainer",
    )

    def __init__(self, trainer: Any, installation: Installation) -> None:
        self.trainer = trainer
        self.omits = False
        self._installation = installation
        self._thread = get_ident()
        self._loader = new_loader()
        self.timed: Any = None
        self._step: TracedStep | None = None
        self._capture: StepCapture | None = None
        self._left = 0
        self._collected = False
        boundaries = installation.boundaries
        self._before = (boundaries.owner, boundaries.hand_over(monotonic_ns()))
        self._rest()

    @property
    def _records(self) -> bool:
        """Whether anything is to be recorded: not in a forked child, not once it has been switched off."""
        return installed() is self._installation and self._installation.recorder.recording

    @property
    def _is_open(self) -> bool:
        """Whether a step is open; one that a failure of ours has ended is not."""
        capture = None if self._step is None else self._step.capture
        return capture is not None and not capture.detached

    def _attend(self) -> None:
        """The training thread trains; other loaders than the trainer's are nobody's."""
        boundaries = self._installation.boundaries
        boundaries.owner = self._thread if self._records else 0
        boundaries.fetching = True

    def _rest(self) -> None:
        boundaries = self._installation.boundaries
        boundaries.owner = 0
        boundaries.fetching = False

    # ── the collection of a group's batches ─────────────────────────────────────────────────────────────────────

    def collecting(self, iterator: Iterator[Any]) -> Iterator[Any]:
        """The trainer is about to fetch the batches of one update.

        Args:
            iterator: Where it fetches from.

        Returns:
            What it is to fetch from.
        """
        self._collected = True
        if not self._is_open:
            self._close(None)
            self._capture = None
        if self.omits or not self._records or isinstance(iterator, _TrainingBatches):
            return iterator
        return _TrainingBatches(iterator, self._loader, self)

    def fetch_begins(self) -> None:
        """The trainer fetches a batch."""
        self._attend()
        self._installation.boundaries.fetching = False

    def fetch_ended(self) -> None:
        """It has its batch, or there is none left."""
        boundaries = self._installation.boundaries
        if boundaries.owner:
            capture = boundaries.adopt()
            self._capture = self._capture or capture
        if self._is_open:
            self._attend()
        else:
            self._rest()

    def collected(self, result: tuple[list[Any], Any]) -> None:
        """The batches of one update are there.

        Args:
            result: What `get_batch_samples` returned: the batches, and how many items they hold.
        """
        self._left = len(result[0])

    # ── the step ────────────────────────────────────────────────────────────────────────────────────────────────

    def step_begins(self) -> None:
        """The first micro-batch of an update is about to be trained."""
        if self.omits or not self._records:
            return
        if self._is_open:
            return  # what an earlier epoch left over goes into this update
        if not self._collected:
            _say_once(BYPASSED)
        elif self._capture is not self._installation.recorder.active:
            self.omits = True  # a failure of ours has lost a part of the group
            return
        boundaries = self._installation.boundaries
        self._attend()
        if boundaries.stale:
            boundaries.before_fetch()
        self._open()
        capture = None if self._step is None else self._step.capture
        if capture is not None and capture.regions:
            capture.away_ns += _uncovered_ns(capture.regions, monotonic_ns())

    def _open(self) -> None:
        self._close(None)
        memory = self._installation.boundaries.memory
        if memory is not None:
            memory.dirty = True  # the peaks since the last step are nobody's
        self._step = TracedStep()
        self._step.__enter__()
        self._capture = self._step.capture

    def _close(self, kind: type[BaseException] | None) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(kind, None, None)

    def micro_batch_ended(self) -> None:
        """A micro-batch without an update has been trained."""
        self._left -= 1

    def step_ended(self) -> None:
        """An update has been made, or skipped by a scaler."""
        self._left -= 1
        self._collected = False
        self._capture = None
        if self.omits:
            self.omits = False
            return
        if self._records:
            self._close(None)
            if self._left > 0:  # older transformers (4.48) updates within a group after an uneven epoch
                self._collected = True
                self._open()
                return
        self._rest()

    def ends(self) -> None:
        """The loop has ended or was left by an exception: a group without an update is no step."""
        owner, explicit = self._before
        boundaries = self._installation.boundaries
        try:
            self._close(GeneratorExit)
            boundaries.give_up()
        finally:
            boundaries.explicit = explicit
            boundaries.fetching = False
            boundaries.owner = owner if self._records else 0


class _TrainingBatches(TimedIterator[Any]):
    """The trainer's iterator while a group is collected: only its fetches, and the copies within, are seen."""

    def __init__(self, iterator: Iterator[Any], loader: int, attempt: Attempt) -> None:
        super().__init__(iterator, loader, 0)
        self._attempt = attempt
        self._timed = attempt.timed  # not the iterator: nothing of ours keeps a loader's workers alive

    def __next__(self) -> Any:
        attempt = self._attempt
        told("collection", attempt.fetch_begins)
        try:
            return super().__next__()
        finally:
            attempt.timed = self._timed
            told("collection", attempt.fetch_ended)


def _uncovered_ns(regions: Sequence[Region], end_ns: int) -> int:
    """Time from the first region to an end that lies in no region: the trainer counts tokens and the like."""
    ordered = sorted(regions, key=lambda region: region[1])
    uncovered_ns, reached_ns = 0, ordered[0][1]
    for _, start_ns, stop_ns, _ in ordered:
        uncovered_ns += max(0, start_ns - reached_ns)
        reached_ns = max(reached_ns, stop_ns)
    return uncovered_ns + max(0, end_ns - reached_ns)


def _say_once(line: str) -> None:
    if line not in _said:
        _said.add(line)
        say(line)
