"""Power samples of one device, and the strict integral over windows.

A segment is what happened between two neighbouring samples. It belongs to a window when both samples lie inside; one
that straddles an edge belongs to none and is left for the remainder, which is summed up on its own, so that windows
and remainder together equalling the whole is a check and not a definition.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepmeter.analysis.energy.exact import DOUBLED_PER_MJ, DoubledSums, Ints, running, trapezoids
from stepmeter.errors import CheckFailedError

Floats = NDArray[np.float64]


@dataclass(frozen=True)  # no slots: cached properties need a dictionary
class PowerTimeline:
    """Power samples of one device.

    Attributes:
        hw_id: UUID of the device.
        time_ns: When each was read, ascending and without repeats; shape (n,).
        power_mw: Power in mW; shape (n,).
    """

    hw_id: str
    time_ns: Ints
    power_mw: Ints

    @functools.cached_property
    def segments(self) -> DoubledSums:
        """Energy of each of the n - 1 segments."""
        return trapezoids(self.time_ns, self.power_mw)

    @functools.cached_property
    def _running(self) -> DoubledSums:
        return running(self.segments)

    def inside(self, start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
        """The first and the last sample inside windows.

        Args:
            start_ns: Starts in ns.
            end_ns: Ends in ns, none before its start.

        Returns:
            Indices; the last is not before the first, and equals it where no whole segment lies inside.
        """
        first = np.searchsorted(self.time_ns, start_ns, side="left")
        last = np.searchsorted(self.time_ns, end_ns, side="right") - 1
        first = np.minimum(first, len(self.time_ns) - 1)
        return first.astype(np.int64), np.maximum(first, last).astype(np.int64)

    def whole_segments(self, start_ns: Ints, end_ns: Ints) -> DoubledSums:
        """Energy of the segments that lie wholly inside each window.

        Args:
            start_ns: Starts in ns.
            end_ns: Ends in ns, none before its start.

        Returns:
            One sum a window.
        """
        first, last = self.inside(start_ns, end_ns)
        return self._running[last] - self._running[first]

    def split(self, start_ns: Ints, end_ns: Ints) -> tuple[DoubledSums, int]:
        """Split all energy into windows and a remainder that is summed on its own, and check that they are the whole.

        Args:
            start_ns: Starts in ns of windows that do not overlap.
            end_ns: Ends in ns, none before its start.

        Returns:
            One sum a window, and the energy of the segments that no window holds, in doubled mW·ns.

        Raises:
            CheckFailedError: Windows and remainder are not the whole, as when windows overlap.
        """
        first, last = self.inside(start_ns, end_ns)
        windows = self._running[last] - self._running[first]
        count = len(self.time_ns)
        depth = np.cumsum(np.bincount(first, minlength=count) - np.bincount(last, minlength=count))
        remainder = self.segments[depth[:-1] == 0].total()
        difference = windows.total() + remainder - self.total()
        if difference:
            raise CheckFailedError(
                f"{self.hw_id}: steps and remainder differ from the whole by {difference / DOUBLED_PER_MJ:+.6f} mJ; "
                "do steps overlap?"
            )
        return windows, remainder

    def total(self) -> int:
        """Energy from the first sample to the last, in doubled mW·ns."""
        return self.segments.total()

    def until(self, at_ns: Ints) -> Floats:
        """Energy from the first sample to moments between samples, power taken as linear.

        Args:
            at_ns: Moments in ns, from the first sample to the last.

        Returns:
            Energies in mJ.
        """
        index = np.clip(np.searchsorted(self.time_ns, at_ns, side="right") - 1, 0, len(self.time_ns) - 2)
        since_ns = (at_ns - self.time_ns[index]).astype(float)
        length_ns = (self.time_ns[index + 1] - self.time_ns[index]).astype(float)
        power_mw = self.power_mw[index] + (self.power_mw[index + 1] - self.power_mw[index]) * since_ns / length_ns / 2
        before = self._running[index]
        until_mj: Floats = (before.high * 2.0**31 + before.low) / DOUBLED_PER_MJ + power_mw * since_ns / 1e9
        return until_mj
