"""How the energy of a tick is shared out inside it: evenly, or by what phases and idle time were found to draw.

Energy up to any moment becomes a whole number of mJ, and a window's is the difference of two such numbers. So windows
and the gaps between them add up to the counter to the millijoule, whatever shares were chosen.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
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


@dataclass(frozen=True)  # no slots: cached properties need a dictionary
class Sharing:
    """Energy of a device up to any moment.

    Attributes:
        counter: Its ticks.
        loads: When it did what; kinds of work do not overlap.
        at_ticks_ns: Time of each kind of work before each tick; shape (kinds, ticks).
        power_mw: Power of each kind of work and, last, of the rest; shape (kinds + 1, intervals between ticks).
        is_fitted: Whether those came from a fit, for each interval.
    """

    counter: CounterTimeline
    loads: tuple[Windows, ...]
    at_ticks_ns: Ints
    power_mw: Floats
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
        since_ns = at_ns - counter.tick_ns[interval]
        part = self._weight(interval, [load.time_before(at_ns) for load in self.loads], since_ns)
        whole = self._whole_weights[interval]
        even = since_ns / np.maximum(counter.length_ns[interval], 1)
        share = np.divide(part, whole, out=even, where=whole > 0)
        within_mj = np.rint(counter.rise_mj[interval] * np.clip(share, 0.0, 1.0)).astype(np.int64)
        until_mj: Ints = counter.grown_mj[interval] + within_mj
        return until_mj

    @functools.cached_property
    def _whole_weights(self) -> Floats:
        interval = np.arange(len(self.counter.length_ns))
        return self._weight(interval, list(self.at_ticks_ns[:, 1:]), self.counter.length_ns)

    def _weight(self, interval: Ints, busy_ns: Sequence[Ints], since_ns: Ints) -> Floats:
        """Powers times times since the interval's first tick, given each kind's time since the beginning."""
        weight: Floats = self.power_mw[-1, interval] * since_ns
        for kind, until_ns in enumerate(busy_ns):
            more_mw = self.power_mw[kind, interval] - self.power_mw[-1, interval]
            weight = weight + more_mw * (until_ns - self.at_ticks_ns[kind, interval])
        return np.maximum(weight, 0.0, out=weight)


def share_out(counter: CounterTimeline, loads: Sequence[Windows], least_mw: float, most_mw: float) -> Sharing:
    """Find out, block by block, what each kind of work and the rest draw.

    Args:
        counter: Ticks of the device, two or more.
        loads: When it did what; kinds of work do not overlap.
        least_mw: Power that it never goes below.
        most_mw: Power that it never exceeds.

    Returns:
        How its energy is shared out.
    """
    at_ticks_ns = np.array([load.time_before(counter.tick_ns) for load in loads], dtype=np.int64)
    at_ticks_ns = at_ticks_ns.reshape(len(loads), len(counter.tick_ns))
    busy_ns = np.diff(at_ticks_ns, axis=1)
    rest_ns = np.maximum(counter.length_ns - busy_ns.sum(axis=0), 0)
    times_ns = np.concatenate([busy_ns, rest_ns[np.newaxis]]).astype(np.float64)
    power_mw = np.ones_like(times_ns)
    is_fitted = np.zeros(times_ns.shape[1], dtype=bool)
    known = ~counter.is_reset
    for start in range(0, times_ns.shape[1] if loads else 0, BLOCK_TICKS):
        block = slice(start, start + BLOCK_TICKS)
        energy = (counter.rise_mj[block][known[block]] * MW_NS_PER_MJ).astype(np.float64)
        found = _fit(times_ns[:, block][:, known[block]], energy, least_mw, most_mw)
        if found is not None:
            power_mw[:, block] = found[:, np.newaxis]
            is_fitted[block] = True
    return Sharing(counter, tuple(loads), at_ticks_ns, power_mw, is_fitted)


def condition(times_ns: Floats) -> float:
    """How badly kinds of work can be told apart.

    Args:
        times_ns: Time of each kind in each tick; shape (kinds, ticks).

    Returns:
        Condition number of its rows, each scaled to length 1; infinite when one is absent.
    """
    lengths = np.linalg.norm(times_ns, axis=1)
    if not lengths.all():
        return float("inf")
    return float(np.linalg.cond((times_ns / lengths[:, np.newaxis]).T))


def _fit(times_ns: Floats, energy: Floats, least_mw: float, most_mw: float) -> Floats | None:
    """Powers of each kind and the rest, else of all kinds alike and the rest; None where an even share does as well."""
    length_ns = times_ns.sum(axis=0)
    if not length_ns.sum() or times_ns.shape[1] < 2 * len(times_ns):
        return None
    even = energy - length_ns * (energy.sum() / length_ns.sum())
    alike = np.stack([length_ns - times_ns[-1], times_ns[-1]])
    for candidate in (times_ns,) if len(times_ns) == len(alike) else (times_ns, alike):
        if condition(candidate) > WORST_CONDITION:
            continue
        powers = np.clip(_least_squares(candidate, energy, most_mw - least_mw), least_mw, most_mw)
        left = energy - powers @ candidate
        if float(left @ left) <= (1 - LEAST_GAIN_SHARE) * float(even @ even):
            return powers if candidate is times_ns else np.array([powers[0]] * (len(times_ns) - 1) + [powers[1]])
    return None


def _least_squares(times_ns: Floats, energy: Floats, range_mw: float) -> Floats:
    """Non-negative least squares, drawn towards the mean power by what the ticks leave open.

    A kind that is in few ticks, as a tool of an agent, would else take all that these ticks happened to have more or
    less than others. Kinds that come out negative are put at 0 one by one, and the others solved again.

    Source: ridge regression (Hoerl and Kennard, 1970); its weight is the variance of what a first fit leaves
    unexplained over that of powers spread evenly over their range.
    """
    mean_mw = energy.sum() / times_ns.sum()
    first = np.linalg.lstsq(times_ns.T, energy, rcond=None)[0]
    left = energy - first @ times_ns
    freedom = max(times_ns.shape[1] - len(times_ns), 1)
    weight_ns = math.sqrt(float(left @ left) / freedom * 12) / max(range_mw, 1.0)
    rows = np.vstack([times_ns.T, weight_ns * np.eye(len(times_ns))])
    target = np.concatenate([energy, np.full(len(times_ns), weight_ns * mean_mw)])
    powers = np.zeros(len(times_ns))
    free = np.ones(len(times_ns), dtype=bool)
    while free.any():
        solved = np.linalg.lstsq(rows[:, free], target, rcond=None)[0]
        if (solved >= 0).all():
            powers[free] = solved
            break
        free[np.flatnonzero(free)[solved.argmin()]] = False
    return powers
