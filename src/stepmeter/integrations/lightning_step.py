"""What happens inside Lightning's `training_step`: which calls are forwards, and what of an optimizer is the update."""

from __future__ import annotations

from collections.abc import Iterable
from threading import get_ident
from typing import Any, Final

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.region import Region
from stepmeter.capture.step import StepCapture
from stepmeter.conventions.phases import FORWARD, H2D, INPUT_WAIT, OPTIMIZER, PHASES
from stepmeter.instrumentation.instrumentor import Installation

_INPUT_WAIT: Final = PHASES.index(INPUT_WAIT)
_COPY: Final = PHASES.index(H2D)
_FORWARD: Final = PHASES.index(FORWARD)
_OPTIMIZER: Final = PHASES.index(OPTIMIZER)

Interval = tuple[int, int]
"""(start, end) on the monotonic clock in ns."""


class TrainingStep:
    """The calls of `training_step` in one micro-batch; an optimizer's closure may make several.

    Args:
        installation: What stands in torch.

    Attributes:
        compiled: Whether the module is compiled: no call is seen inside, and all of it is forward.
    """

    __slots__ = ("_calls", "_installation", "_outside", "_pieces", "_start_ns", "_update", "compiled")

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.compiled = False
        self.forget()

    def forget(self) -> None:
        """Another micro-batch begins."""
        self._calls: list[Interval] = []
        self._pieces: list[Region] = []
        self._update: tuple[int, Any] | None = None
        self._start_ns = 0
        self._outside = False

    def begins(self) -> None:
        """`training_step` is called, by a wrapper's forward with DDP, by an optimizer's closure otherwise."""
        boundaries = self._installation.boundaries
        if boundaries.owner != get_ident():
            return
        self._outside = boundaries.in_forward
        boundaries.in_forward = self.compiled
        boundaries.in_training_step = True
        self._start_ns = now_ns = monotonic_ns()
        if self._update is not None:  # an optimizer that evaluates several times has worked since the last one
            start_ns, mark = self._update
            self._pieces.append((_OPTIMIZER, start_ns, now_ns, self._pair(mark)))
            self._update = None

    def ends(self) -> None:
        """`training_step` has returned or raised."""
        start_ns, self._start_ns = self._start_ns, 0
        if not start_ns:
            return
        boundaries = self._installation.boundaries
        boundaries.in_forward = self._outside
        boundaries.in_training_step = False
        end_ns = monotonic_ns()
        self._calls.append((start_ns, end_ns))
        if self.compiled:
            self._pieces.append((_FORWARD, start_ns, end_ns, None))

    def update_begins(self) -> None:
        """The closure in an optimizer's step has run: forward, backward and what lies between are not the update's."""
        running = self._installation.boundaries.optimizers
        if running:
            name, _, events, _ = running[-1]
            timer = self._installation.boundaries.timer
            mark = None if timer is None else timer.mark()
            running[-1] = (name, monotonic_ns(), events, mark)
            self._update = (running[-1][1], mark)

    def _pair(self, mark: Any) -> Any:
        timer = self._installation.boundaries.timer
        return None if timer is None or mark is None else timer.pair(mark)

    def tidy(self, capture: StepCapture, since: int) -> None:
        """Keep the forwards within `training_step` only: DDP's own call goes around all of it.

        Args:
            capture: The group.
            since: How many regions it had before this micro-batch.
        """
        regions, calls = capture.regions, self._calls
        if calls:
            regions[since:] = [region for region in regions[since:] if region[0] != _FORWARD or _within(region, calls)]
        regions += self._pieces


def keep_input(capture: StepCapture) -> None:
    """Keep, of what came before a group, the last fetches and copies: earlier ones were a search's, which trained.

    Args:
        capture: The group.
    """
    trained = [index for index, region in enumerate(capture.regions) if region[0] not in {_INPUT_WAIT, _COPY}]
    if trained:
        del capture.regions[: trained[-1] + 1]
        kept = sum(region[0] == _INPUT_WAIT for region in capture.regions)
        del capture.batches[: len(capture.batches) - kept]


def gaps_ns(regions: Iterable[Region], spans: list[Interval]) -> int:
    """Time of a group that is neither traced nor input: between its micro-batches, and before the first.

    Args:
        regions: The group's regions.
        spans: Its micro-batches.

    Returns:
        ns from the group's beginning to the end of the last micro-batch without these and without the fetches between.
    """
    waits = [region for region in regions if region[0] == _INPUT_WAIT and not _within(region, spans)]
    start_ns = min([spans[0][0], *(region[1] for region in regions)])
    traced_ns = sum(end - start for start, end in spans)
    return max(0, spans[-1][1] - start_ns - traced_ns - sum(end - start for _, start, end, _ in waits))


def _within(region: Region, intervals: Iterable[Interval]) -> bool:
    return any(start_ns <= region[1] and region[2] <= end_ns for start_ns, end_ns in intervals)
