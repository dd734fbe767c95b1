"""How the energy of a tick is shared out inside it: evenly, or by what busy and idle time were found to draw.

Energy up to any moment becomes a whole number of mJ, and a window's is the difference of two such numbers. So windows
and the gaps between them add up to the counter to the millijoule, whatever shares were chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepmeter.analysis.energy.counter import MW_NS_PER_MJ, Bools, CounterTimeline, Floats
from stepmeter.analysis.energy.exact import Ints

BLOCK_TICKS = 200
"""Ticks that share one fit: a power that drifts is followed, and noise averages out."""

WORST_CONDITION = 30.0
"""Condition number beyond which a fit is not used: every tick holds the same mix of busy and idle time, as when the
step's period locks to the tick's, and no mix can be told from another."""

LEAST_GAIN_SHARE = 0.1
"""A fit must explain so much of what an even share leaves unexplained, else the even share stands."""


@dataclass(frozen=True, slots=True)
class Windows:
    """Stretches of time that do not overlap.

    Attributes:
        start_ns: Starts in ns, ascending.
        end_ns: Ends in ns.
    """

    start_ns: Ints
    end_ns: Ints

    def time_before(self, at_ns: Ints) -> Ints:
        """Time inside any window up to moments.

        Args:
            at_ns: Moments in ns.

        Returns:
            Durations in ns.
        """
        if not len(self.start_ns):
            return np.zeros(len(at_ns), dtype=np.int64)
        before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(self.end_ns - self.start_ns)])
        index = np.searchsorted(self.start_ns, at_ns, side="right")
        within = np.minimum(at_ns - self.start_ns[index - 1], self.end_ns[index - 1] - self.start_ns[index - 1])
        return np.where(index > 0, before[index - 1] + within, 0).astype(np.int64)


def union(start_ns: Ints, end_ns: Ints) -> Windows:
    """Time that is inside at least one of several windows.

    Args:
        start_ns: Starts in ns, in any order.
        end_ns: Ends in ns.

    Returns:
        The merged windows.
    """
    if not len(start_ns):
        return Windows(start_ns, end_ns)
    order = np.argsort(start_ns, kind="stable")
    start_ns, reach_ns = start_ns[order], np.maximum.accumulate(end_ns[order])
    begins = np.concatenate([[True], start_ns[1:] > reach_ns[:-1]])
    ends = np.concatenate([begins[1:], [True]])
    return Windows(start_ns[begins], reach_ns[ends])


@dataclass(frozen=True, slots=True)
class Sharing:
    """Energy of a device up to any moment.

    Attributes:
        counter: Its ticks.
        busy: When it worked.
        busy_mw: Power of busy time, for each interval between ticks.
        idle_mw: Power of the rest.
        is_fitted: Whether those came from a fit.
    """

    counter: CounterTimeline
    busy: Windows
    busy_mw: Floats
    idle_mw: Floats
    is_fitted: Bools

    def until(self, at_ns: Ints) -> Ints:
        """Energy from the first tick to moments.

        Args:
            at_ns: Moments in ns, from the first tick to the last.

        Returns:
            Energies, rounded to mJ.
        """
        counter = self.counter
        interval = counter.interval_of(at_ns)
        from_ns = counter.tick_ns[interval]
        part = self._weight(interval, from_ns, at_ns)
        whole = self._weight(interval, from_ns, counter.tick_ns[interval + 1])
        share = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
        within_mj = np.rint(counter.rise_mj[interval] * np.clip(share, 0.0, 1.0)).astype(np.int64)
        until_mj: Ints = counter.grown_mj[interval] + within_mj
        return until_mj

    def _weight(self, interval: Ints, from_ns: Ints, to_ns: Ints) -> Floats:
        busy_ns = self.busy.time_before(to_ns) - self.busy.time_before(from_ns)
        return self.busy_mw[interval] * busy_ns + self.idle_mw[interval] * (to_ns - from_ns - busy_ns)


def share_out(counter: CounterTimeline, busy: Windows, most_mw: float) -> Sharing:
    """Find out, block by block, what busy and idle time draw.

    Args:
        counter: Ticks of the device, two or more.
        busy: When it worked.
        most_mw: Power that it never exceeds.

    Returns:
        How its energy is shared out.
    """
    busy_ns = np.diff(busy.time_before(counter.tick_ns)).astype(float)
    idle_ns = counter.length_ns - busy_ns
    busy_mw, idle_mw = np.ones(len(busy_ns)), np.ones(len(busy_ns))
    is_fitted = np.zeros(len(busy_ns), dtype=bool)
    known = ~counter.is_reset
    for start in range(0, len(busy_ns), BLOCK_TICKS):
        block = slice(start, start + BLOCK_TICKS)
        chosen = known[block]
        powers = _fit(busy_ns[block][chosen], idle_ns[block][chosen], counter.rise_mj[block][chosen], most_mw)
        if powers is not None:
            busy_mw[block], idle_mw[block] = powers
            is_fitted[block] = True
    return Sharing(counter, busy, busy_mw, idle_mw, is_fitted)


def condition(busy_ns: Floats, idle_ns: Floats) -> float:
    """How badly busy and idle power can be told apart.

    Args:
        busy_ns: Busy time of each tick in ns.
        idle_ns: Idle time of each tick in ns.

    Returns:
        Condition number of the two columns, each scaled to length 1; infinite when one is absent or both are parallel.
    """
    lengths = float(np.linalg.norm(busy_ns) * np.linalg.norm(idle_ns))
    cosine = float(busy_ns @ idle_ns) / lengths if lengths else 1.0
    return float("inf") if cosine >= 1 else float(np.sqrt((1 + cosine) / (1 - cosine)))


def _fit(busy_ns: Floats, idle_ns: Floats, rise_mj: Ints, most_mw: float) -> tuple[float, float] | None:
    """Non-negative least squares in two unknowns; None where it says no more than an even share."""
    if len(busy_ns) < 4 or condition(busy_ns, idle_ns) > WORST_CONDITION:
        return None
    energy = rise_mj * MW_NS_PER_MJ
    design = np.stack([busy_ns, idle_ns], axis=1)
    busy_mw, idle_mw = (float(power) for power in np.linalg.lstsq(design, energy, rcond=None)[0])
    if idle_mw < 0:
        busy_mw, idle_mw = float(busy_ns @ energy / (busy_ns @ busy_ns)), 0.0
    busy_mw, idle_mw = min(max(busy_mw, 0.0), most_mw), min(idle_mw, most_mw)
    length_ns = busy_ns + idle_ns
    even = energy - length_ns * (energy.sum() / length_ns.sum())
    left = energy - design @ np.array([busy_mw, idle_mw])
    if float(left @ left) > (1 - LEAST_GAIN_SHARE) * float(even @ even):
        return None
    return busy_mw, idle_mw
