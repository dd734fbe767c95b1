"""A timed region, and what a device's clock says of the regions of a step once it has got that far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from stepmeter.capture.step import StepTimeBatch

Region = tuple[int, int, int, Any]
"""(phase index, start, end on the monotonic clock in ns, the device timer's pending pair or None)."""


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """What the device's clock says of one step; None for what was not timed or was lost.

    Attributes:
        regions_ns: Duration of each region, in the order of the batch's regions, in ns.
        traced_ns: From the end of the first input wait to the step's end, less the input waits inside, in ns.
        start_ns: When the device got to the step, on the monotonic clock.
        end_ns: When the device had done the step, on the monotonic clock.
        lost_pairs: Regions whose pair of events failed.
    """

    regions_ns: tuple[int | None, ...]
    traced_ns: int | None
    start_ns: int | None
    end_ns: int | None
    lost_pairs: int = 0


class PendingTimes(Protocol):
    """A step's device times before the device has got that far."""

    def resolve(self, regions: list[Region]) -> DeviceTimes | None:
        """Read them, without waiting for the device.

        Args:
            regions: The step's regions.

        Returns:
            The times; None as long as the device has not done all of the step.
        """
        ...


class Unresolved:
    """Completed steps whose device times are not known yet: one that is not holds back those behind it.

    Attributes:
        waiting: The steps, oldest first.
    """

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting: deque[StepTimeBatch] = deque()

    def release(self, batches: Iterable[StepTimeBatch]) -> Iterator[tuple[StepTimeBatch, DeviceTimes | None]]:
        """Add steps and give out, in order, those that are known.

        Args:
            batches: Steps that have completed since.

        Yields:
            A step and its device times; None for a step without a device clock.
        """
        waiting = self.waiting
        waiting.extend(batches)
        while waiting:
            batch = waiting.popleft()
            times = None if batch.device is None else batch.device.resolve(batch.regions)
            if times is None and batch.device is not None:
                waiting.appendleft(batch)
                return
            yield batch, times

    def give_up(self) -> Iterator[tuple[StepTimeBatch, DeviceTimes | None]]:
        """Give out what is left as steps without a device clock; for the end of the program.

        Yields:
            A step and None.
        """
        while self.waiting:
            yield self.waiting.popleft(), None
