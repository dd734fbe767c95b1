"""Work of which the next forward or backward decides whether it is training."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, ClassVar, Final

from stepmeter.capture.region import Region
from stepmeter.capture.step import Batch, StepCapture
from stepmeter.conventions.phases import H2D, INPUT_WAIT, PHASES

_LIMIT: Final = 1024
"""What may wait for a forward; a program that only reads a loader would fill memory otherwise."""

new_loader: Final = itertools.count(1).__next__
"""Numbers a loader; an id would be another loader's once a program keeps the iterator only."""

Waiting = tuple[Region, Batch | None, bool]
"""(region, batch or None for a copy, whether gradients were off)."""


class Undecided:
    """Fetches and copies that wait for a forward, and forwards that wait for a backward.

    Attributes:
        waiting: Fetches and copies, oldest first.
        doubtful: Whether something seems to have been an evaluation and a forward or backward may still say otherwise.
    """

    INPUT_WAIT: ClassVar[int] = PHASES.index(INPUT_WAIT)
    COPY: ClassVar[int] = PHASES.index(H2D)

    __slots__ = ("_away_ns", "_doubted", "_forwards", "doubtful", "waiting")

    def __init__(self) -> None:
        self.waiting: list[Waiting] = []
        self.doubtful = False
        self._doubted: list[Waiting] = []
        self._forwards: list[Region] = []
        self._away_ns: tuple[int, int] | None = None

    def fetched(self, region: Region, batch: Batch, no_grad: bool) -> None:
        """A batch came."""
        waiting = self.waiting
        if len(waiting) >= _LIMIT:
            del waiting[: _LIMIT // 2]
        index = len(waiting)
        while index and waiting[index - 1][1] is None and waiting[index - 1][0][1] >= region[1]:
            index -= 1  # copied by the loader itself, within the fetch
        waiting.insert(index, (region, batch, no_grad))

    def copied(self, region: Region) -> None:
        """Something was copied to the device."""
        waiting = self.waiting
        if len(waiting) >= _LIMIT:
            del waiting[: _LIMIT // 2]
        waiting.append((region, None, False))

    def forward_in_doubt(self, region: Region) -> None:
        """A forward in evaluation mode, with gradients on, has run."""
        self._forwards.append(region)
        self.doubtful = True
        if len(self._forwards) > _LIMIT:
            del self._forwards[: _LIMIT // 2]

    def first(self) -> Region | None:
        """The oldest that waits."""
        return self.waiting[0][0] if self.waiting else None

    def fetched_without_grad(self) -> bool:
        """Whether a batch that waits was fetched with gradients off."""
        return any(entry[2] for entry in self.waiting)

    def take_copies(self) -> list[Region]:
        """Take out the copies that no fetch precedes."""
        waiting, count = self.waiting, 0
        while count < len(waiting) and waiting[count][1] is None:
            count += 1
        taken = [entry[0] for entry in waiting[:count]]
        del waiting[:count]
        return taken

    def take_forwards(self, since_ns: int = 0) -> list[Region]:
        """Take out the forwards in doubt; those that began earlier than `since_ns` are dropped."""
        taken = [region for region in self._forwards if region[1] >= since_ns]
        self._forwards.clear()
        return taken

    def drop_loader(self, loader: int) -> None:
        """A loader has ended: what waits of it, and copies alone, are nobody's."""
        self.waiting = [entry for entry in self.waiting if entry[1] is None or entry[1][0] != loader]
        if all(entry[1] is None for entry in self.waiting):
            self.waiting.clear()

    def adopt(self, capture: StepCapture, *, first: bool) -> None:
        """What waits is training.

        Args:
            capture: The step that it belongs to.
            first: Whether nothing has been trained before; a program sets itself up with copies, so they open no step.
        """
        entries = self._doubted + self.waiting if self._doubted else self.waiting
        if first and all(entry[1] is None for entry in entries):
            entries = []
        for entry in entries:
            capture.regions.append(entry[0])
            if entry[1] is not None:
                capture.batches.append(entry[1])
        if self._away_ns is not None:
            capture.away_ns += self._away_ns[1] - self._away_ns[0]
        self._clear()

    def _clear(self) -> None:
        self.waiting.clear()
        self._doubted.clear()
        self._away_ns = None
        self.doubtful = bool(self._forwards)

    def settle(self, evaluated: Callable[[int, int, Any], None]) -> None:
        """No training forward came: what was in doubt has been an evaluation.

        Args:
            evaluated: Told the start, the end and the first device pair of forwards that no backward followed.
        """
        if self._forwards:
            first, end_ns = self._forwards[0], self._forwards[-1][2]
            self._forwards.clear()
            evaluated(first[1], end_ns, first[3])
        self._doubted.clear()
        self.doubtful = False

    def doubt(self, start_ns: int, end_ns: int) -> None:
        """An evaluation's forward has run; what it fetched is nobody's, unless a training forward uses it next.

        What another loader gave before is kept: a program may evaluate between a fetch and its use.

        Args:
            start_ns: Start of the forward.
            end_ns: Its end.
        """
        kept = self._kept()
        self._doubted = self.waiting[kept:]
        del self.waiting[kept:]
        self.doubtful = bool(self._doubted or self._forwards)
        since_ns = self._doubted[0][0][1] if self._doubted else start_ns
        if not self.waiting:
            self._away_ns = None
        else:
            self._away_ns = (self._away_ns[0] if self._away_ns else since_ns, end_ns)

    def _kept(self) -> int:
        """How many of those that wait the last loader, or the loader under no_grad, has not fetched."""
        waiting = self.waiting
        if self.fetched_without_grad():
            return next(index for index, entry in enumerate(waiting) if entry[2])
        loaders = [entry[1][0] for entry in waiting if entry[1] is not None]
        if not loaders:
            return 0
        return next(i for i, entry in enumerate(waiting) if entry[1] is not None and entry[1][0] == loaders[-1])
