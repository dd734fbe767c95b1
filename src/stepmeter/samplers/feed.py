"""What is known in this process of a device's energy, for whoever asks while it happens: energy since a moment."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stepmeter.samplers.ticks import Tick

LIMIT_HEADROOM: Final = 1.1
UNKNOWN_LIMIT_HEADROOM: Final = 1.5
TROUGH_SHARE: Final = 0.5
"""What a board's power stays within, as the analysis of energy has it."""

STALE_NS: Final = 5_000_000_000
"""A counter that has not moved for so long tells nothing of now."""

_MW_NS_PER_MJ: Final = 1e9
_FLOORED_MJ: Final = 2.0


class Measured(NamedTuple):
    """Energy of a window.

    Attributes:
        value_mj: The most likely.
        lower_mj: It can't be less; None where only power was read, which bounds nothing.
        upper_mj: It can't be more; likewise.
    """

    value_mj: float
    lower_mj: float | None
    upper_mj: float | None


class _Moment(NamedTuple):
    at_ns: int
    unsure_ns: int
    energy_mj: float


@dataclass(slots=True)
class Mark:
    """Where a window begins.

    Attributes:
        at_ns: The moment, monotonic.
        before: The last known moment before it.
        after: The first known one after it.
        resets: How often the counter had begun anew.
    """

    at_ns: int
    before: _Moment | None
    resets: int
    after: _Moment | None = None


@dataclass(slots=True)
class EnergyFeed:
    """One device's energy as far as it is known; written by the thread that follows it.

    Attributes:
        followers: Threads that follow the device.
        has_counter: Whether it has an energy counter; False = its power is added up.
        limit_w: Enforced power limit in W; None while not known.
    """

    followers: int = 0
    has_counter: bool = True
    limit_w: float | None = None
    _last: _Moment | None = None
    _previous: _Moment | None = None
    _power: tuple[int, float] | None = None
    _mean_mw: float | None = None
    _least_mw: float = float("inf")
    _most_mw: float = 0.0
    _resets: int = 0
    _waiting: list[Mark] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tick(self, tick: Tick) -> None:
        """Take a move of the counter.

        Args:
            tick: The move.
        """
        unsure_ns = tick.t_hi_ns - tick.t_lo_ns
        with self._lock:
            self._know(_Moment((tick.t_lo_ns + tick.t_hi_ns) // 2, unsure_ns, tick.energy_mj))

    def power(self, at_ns: int, power_w: float) -> None:
        """Take a reading of power.

        Args:
            at_ns: When, monotonic.
            power_w: In W.
        """
        power_mw = power_w * 1000
        with self._lock:
            self._saw(power_mw)
            before, self._power = self._power, (at_ns, power_mw)
            if self.has_counter:
                return
            so_far_mj = 0.0 if self._last is None else self._last.energy_mj
            if before is not None:
                so_far_mj += (before[1] + power_mw) / 2 * (at_ns - before[0]) / _MW_NS_PER_MJ
            self._know(_Moment(at_ns, 0, so_far_mj))

    def mark(self, at_ns: int) -> Mark:
        """Begin a window.

        Args:
            at_ns: Now, monotonic.

        Returns:
            To be given to `since`.
        """
        with self._lock:
            mark = Mark(at_ns, self._last, self._resets)
            self._waiting.append(mark)
            return mark

    def since(self, mark: Mark, end_ns: int) -> Measured | None:
        """End a window; the part after the counter's last move is put at the power of its last interval.

        Args:
            mark: Where it began.
            end_ns: Where it ends, not long ago, monotonic.

        Returns:
            Its energy; None while the device is not known well enough, or when its counter began anew inside.

        Source:
            Bounds: set-membership estimation as in the analysis of energy; see docs/explanation/energy.md.
        """
        with self._lock:
            if mark in self._waiting:
                self._waiting.remove(mark)
            last, mean_mw = self._last, self._mean_mw
            if last is None or mean_mw is None or mark.resets != self._resets or end_ns - last.at_ns > STALE_NS:
                return None
            parts = self._parts(mark, end_ns, last, mean_mw)
        value_mj, lower_mj, upper_mj = (sum(part) for part in zip(*parts, strict=True))
        if not self.has_counter:
            return Measured(value_mj, None, None)
        lower_mj = max(0.0, min(lower_mj - _FLOORED_MJ, value_mj))
        return Measured(value_mj, lower_mj, max(upper_mj + _FLOORED_MJ, value_mj))

    def _parts(self, mark: Mark, end_ns: int, last: _Moment, mean_mw: float) -> list[tuple[float, float, float]]:
        """(value, lower, upper) in mJ: up to the first known moment inside, between known ones, after the last."""
        after = mark.after
        if after is None:
            return [self._unseen(end_ns - mark.at_ns, mean_mw)]
        if end_ns <= after.at_ns:  # the counter moved after the end, and before it was asked for
            if mark.before is None:
                return [self._unseen(end_ns - mark.at_ns, mean_mw)]
            return [self._within(mark.before, after, end_ns - mark.at_ns)]
        first_ns = after.at_ns - mark.at_ns
        head = self._unseen(first_ns, mean_mw) if mark.before is None else self._within(mark.before, after, first_ns)
        if end_ns >= last.at_ns or self._previous is None:
            whole_mj, tail = last.energy_mj - after.energy_mj, self._unseen(end_ns - last.at_ns, mean_mw)
        else:
            known = self._previous
            whole_mj, tail = known.energy_mj - after.energy_mj, self._within(known, last, end_ns - known.at_ns)
        return [head, (whole_mj, whole_mj, whole_mj), tail]

    def _within(self, start: _Moment, end: _Moment, overlap_ns: int) -> tuple[float, float, float]:
        """Of an interval between moves, the part that overlaps the window."""
        rise_mj, length_ns = end.energy_mj - start.energy_mj, max(end.at_ns - start.at_ns, 1)
        rest_ns = max(length_ns - overlap_ns, 0)
        least, most = (bound / _MW_NS_PER_MJ for bound in self._power_bounds_mw())
        slack_mj = most * (start.unsure_ns + end.unsure_ns)
        lower = max(least * overlap_ns, rise_mj - most * rest_ns) - slack_mj
        upper = min(most * overlap_ns, rise_mj - least * rest_ns) + slack_mj
        return rise_mj * overlap_ns / length_ns, lower, upper

    def _unseen(self, duration_ns: int, mean_mw: float) -> tuple[float, float, float]:
        least, most = self._power_bounds_mw()
        value, lower, upper = (power * duration_ns / _MW_NS_PER_MJ for power in (mean_mw, least, most))
        return value, lower, upper

    def _power_bounds_mw(self) -> tuple[float, float]:
        if self.limit_w is None:
            return self._least_mw * TROUGH_SHARE, self._most_mw * UNKNOWN_LIMIT_HEADROOM
        return self._least_mw * TROUGH_SHARE, max(self.limit_w * 1000, self._most_mw) * LIMIT_HEADROOM

    def _know(self, moment: _Moment) -> None:
        last = self._last
        if last is not None and moment.at_ns <= last.at_ns:
            return
        if last is not None and moment.energy_mj < last.energy_mj:
            self._resets += 1
            self._waiting.clear()
            self._last, self._previous = moment, None
            return
        if last is not None:
            if self.has_counter and moment.energy_mj == last.energy_mj:  # a second thread saw the same move
                return
            self._mean_mw = (moment.energy_mj - last.energy_mj) * _MW_NS_PER_MJ / (moment.at_ns - last.at_ns)
            self._saw(self._mean_mw)
        self._previous, self._last = last, moment
        waiting, self._waiting = self._waiting, []
        for mark in waiting:
            if mark.at_ns < moment.at_ns:
                mark.after = moment
            else:  # it began after the counter had moved, and before that was known
                mark.before = moment
                self._waiting.append(mark)

    def _saw(self, power_mw: float) -> None:
        self._least_mw, self._most_mw = min(self._least_mw, power_mw), max(self._most_mw, power_mw)


_feeds: dict[str, EnergyFeed] = {}


def feed_of(uuid: str) -> EnergyFeed:
    """The feed of a device.

    Args:
        uuid: Its UUID.

    Returns:
        The one that all of the process share.
    """
    return _feeds.setdefault(uuid, EnergyFeed())


os.register_at_fork(after_in_child=_feeds.clear)  # the thread that wrote them, and may hold a lock, is not in a child
