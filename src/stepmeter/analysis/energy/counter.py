"""The ticks of one device's energy counter: when it moved, and what lies between two of its moves."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stepmeter.analysis.energy.exact import Ints

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

MW_NS_PER_MJ = 1e9
_FLOORED_MJ = 2  # two intervals, each between readings that are floored to mJ


@dataclass(frozen=True)  # no slots: cached properties need a dictionary
class CounterTimeline:
    """Ticks of one device's counter.

    Attributes:
        hw_id: UUID of the device.
        t_lo_ns: The counter moved at or after this; shape (n,).
        t_hi_ns: The counter moved at or before this, ascending; shape (n,).
        energy_mj: What it holds since; shape (n,).
    """

    hw_id: str
    t_lo_ns: Ints
    t_hi_ns: Ints
    energy_mj: Ints

    @functools.cached_property
    def tick_ns(self) -> Ints:
        """When each tick is taken to have been."""
        return (self.t_lo_ns + self.t_hi_ns) // 2

    @functools.cached_property
    def gap_ns(self) -> Ints:
        """How far the moment of each tick is known."""
        return self.t_hi_ns - self.t_lo_ns

    @functools.cached_property
    def length_ns(self) -> Ints:
        """Time from each tick to the next; shape (n - 1,)."""
        return np.diff(self.tick_ns)

    @functools.cached_property
    def rise_mj(self) -> Ints:
        """Energy from each tick to the next, 0 where the counter went backwards; shape (n - 1,)."""
        return np.maximum(np.diff(self.energy_mj), 0)

    @functools.cached_property
    def is_reset(self) -> Bools:
        """Whether the counter went backwards before the next tick, so that the energy between is unknown."""
        return np.diff(self.energy_mj) < 0

    @functools.cached_property
    def grown_mj(self) -> Ints:
        """Energy from the first tick to each, leaving out what resets hide; shape (n,)."""
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.rise_mj)])

    @property
    def update_period_ns(self) -> int:
        """Median time between ticks."""
        return int(np.median(self.length_ns))

    @functools.cached_property
    def _resets_before(self) -> Ints:
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.is_reset)])

    def interval_of(self, at_ns: Ints) -> Ints:
        """The interval between ticks that holds each moment.

        Args:
            at_ns: Moments in ns, from the first tick to the last.

        Returns:
            Indices from 0 to n - 2.
        """
        found = np.searchsorted(self.tick_ns, at_ns, side="right") - 1
        return np.clip(found, 0, len(self.tick_ns) - 2).astype(np.int64)

    def intervals_of(self, start_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
        """The intervals between ticks in which windows begin and end; one that ends on a tick ends before it.

        Args:
            start_ns: Starts in ns, from the first tick to the last.
            end_ns: Ends in ns, none before its start.

        Returns:
            Indices from 0 to n - 2, the second not below the first.
        """
        first = self.interval_of(start_ns)
        last = np.clip(np.searchsorted(self.tick_ns, end_ns, side="left") - 1, 0, len(self.tick_ns) - 2)
        return first, np.maximum(first, last).astype(np.int64)

    def covers(self, start_ns: Ints, end_ns: Ints) -> Bools:
        """Whether windows lie between the first and the last tick and touch no reset."""
        inside = (start_ns >= self.tick_ns[0]) & (end_ns <= self.tick_ns[-1])
        first, last = self.intervals_of(start_ns, end_ns)
        covered: Bools = inside & (self._resets_before[last + 1] == self._resets_before[first])
        return covered

    def mean_power_mw(self) -> Floats:
        """Mean power of each interval that is known, the interval stretched by how badly its ends are known."""
        known = ~self.is_reset & (self.length_ns > 0)
        stretched_ns = (self.length_ns + (self.gap_ns[:-1] + self.gap_ns[1:]) / 2)[known]
        return self.rise_mj[known] * MW_NS_PER_MJ / stretched_ns

    def bounds(self, start_ns: Ints, end_ns: Ints, least_mw: float, most_mw: float) -> tuple[Floats, Floats]:
        """What the energy of windows must lie between, whatever happened inside a tick.

        For an interval of length L whose energy is ΔE and a window that overlaps it by o:
        E ≥ max(Pmin·o, ΔE - Pmax·(L - o)) and E ≤ min(Pmax·o, ΔE - Pmin·(L - o)); widened by Pmax times what is not
        known of the moments of the ticks at both its ends, and by what floored readings may lack.

        Args:
            start_ns: Starts in ns of windows that `covers` accepts.
            end_ns: Ends in ns.
            least_mw: Power that the device never goes below.
            most_mw: Power that it never goes above.

        Returns:
            Lower and upper bounds in mJ.

        Source:
            Set-membership estimation (Milanese and Vicino), applied tick by tick.
        """
        first, last = self.intervals_of(start_ns, end_ns)
        alone = first == last
        head_ns = np.where(alone, end_ns - start_ns, self.tick_ns[first + 1] - start_ns).astype(float)
        tail_ns = np.where(alone, 0, end_ns - self.tick_ns[last]).astype(float)
        whole_mj = np.where(alone, 0, self.grown_mj[last] - self.grown_mj[first + 1])
        head_low, head_high = self._part(first, head_ns, least_mw, most_mw)
        tail_low, tail_high = self._part(last, tail_ns, least_mw, most_mw)
        lower = whole_mj + head_low + np.where(alone, 0.0, tail_low)
        upper = whole_mj + head_high + np.where(alone, 0.0, tail_high)
        return np.maximum(lower - _FLOORED_MJ, 0.0), upper + _FLOORED_MJ

    def _part(self, interval: Ints, overlap_ns: Floats, least_mw: float, most_mw: float) -> tuple[Floats, Floats]:
        rise_mj = self.rise_mj[interval].astype(float)
        rest_ns = np.maximum(self.length_ns[interval] - overlap_ns, 0.0)
        least, most = least_mw / MW_NS_PER_MJ, most_mw / MW_NS_PER_MJ
        slack_mj = most * (self.gap_ns[interval] + self.gap_ns[interval + 1])
        lower = np.maximum(least * overlap_ns, rise_mj - most * rest_ns) - slack_mj
        upper = np.minimum(most * overlap_ns, rise_mj - least * rest_ns) + slack_mj
        return lower, upper
