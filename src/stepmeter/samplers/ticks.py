"""Finds the moments at which an energy counter moves, with few readings: it learns the period and locks to the phase.

A counter of 100 ms read at arbitrary moments tells nothing about what happened within 100 ms; read a little before and
a little after it moves, it is exact at a known moment.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Final, NamedTuple

MS: Final = 1_000_000

CALIBRATION_TICKS: Final = 8
"""Ticks followed without knowing the period, at `_CALIBRATION_POLL_NS`."""

_CALIBRATION_POLL_NS = 1 * MS
_POLL_NS = MS // 2
_LEAST_MARGIN_NS = 2 * MS
_LEAST_SPACING_NS = 50 * MS
"""Boards whose counter moves each 10 ms are not followed tick by tick: 20 ticks a second are enough."""

_PATIENCE_NS = 1_000_000_000
_LEARNING_SHARE = 1 / 8
_LATE_WAKINGS = 5


class Tick(NamedTuple):
    """A move of the counter.

    Attributes:
        t_lo_ns: It moved at or after this, monotonic.
        t_hi_ns: It moved at or before this, monotonic.
        energy_mj: What it holds since.
    """

    t_lo_ns: int
    t_hi_ns: int
    energy_mj: int


class TickFollower:
    """Follows one counter.

    Args:
        read: Reads the counter in mJ; what it raises passes through.
        now_ns: The monotonic clock.
        sleep_ns: Sleeps so long; may raise to end the following.
    """

    def __init__(self, read: Callable[[], int], now_ns: Callable[[], int], sleep_ns: Callable[[int], None]) -> None:
        self._read = read
        self._now_ns = now_ns
        self._sleep_ns = sleep_ns
        self._last_ns: int | None = None
        self._intervals_ns: list[int] = []
        self._stray_ns = 0.0
        self.period_ns: float | None = None
        self.reads = 0

    def next(self) -> Tick | None:
        """Wait for the next tick.

        Returns:
            The tick; None when the counter stood still for a second.
        """
        poll_ns = _CALIBRATION_POLL_NS
        if self.period_ns is not None:
            poll_ns = _POLL_NS
            self._sleep_until_near(self.period_ns)
        tick = self._poll(poll_ns)
        if tick is not None:
            self._learn((tick.t_lo_ns + tick.t_hi_ns) // 2, (tick.t_hi_ns - tick.t_lo_ns) // 2)
        return tick

    def _sleep_until_near(self, period_ns: float) -> None:
        """A thread that wakes too late tries the tick after, instead of polling for a whole period."""
        for _ in range(_LATE_WAKINGS):
            margin_ns = min(max(_LEAST_MARGIN_NS, round(3 * self._stray_ns) + MS), round(period_ns / 4))
            due_ns = self._due_ns(period_ns, margin_ns)
            wait_ns = due_ns - self._now_ns()
            if wait_ns > 0:
                self._sleep_ns(wait_ns)
            if self._now_ns() < due_ns + margin_ns:
                return

    def _due_ns(self, period_ns: float, margin_ns: int) -> int:
        """A moment shortly before the next tick that is far enough from the last one."""
        last_ns = self._last_ns or 0
        past = (self._now_ns() + margin_ns - last_ns) / period_ns
        ticks = max(math.ceil(past), math.ceil(_LEAST_SPACING_NS / period_ns), 1)
        return last_ns + round(ticks * period_ns) - margin_ns

    def _poll(self, every_ns: int) -> Tick | None:
        """What moved while we slept has no known moment: begin from what the counter holds now."""
        begun_ns = self._now_ns()
        before_mj = self._ask()
        give_up_ns = begun_ns + _PATIENCE_NS
        while begun_ns < give_up_ns:
            unmoved_ns = begun_ns
            self._sleep_ns(every_ns)
            begun_ns = self._now_ns()
            energy_mj = self._ask()
            if energy_mj != before_mj:
                return Tick(unmoved_ns, self._now_ns(), energy_mj)
        return None

    def _ask(self) -> int:
        self.reads += 1
        return self._read()

    def _learn(self, at_ns: int, unsure_ns: int) -> None:
        last_ns, self._last_ns = self._last_ns, at_ns
        if last_ns is None:
            return
        interval_ns = at_ns - last_ns
        if self.period_ns is None:
            self._intervals_ns.append(interval_ns)
            if len(self._intervals_ns) == CALIBRATION_TICKS:
                self.period_ns = float(statistics.median(self._intervals_ns))
            return
        ticks = max(1, round(interval_ns / self.period_ns))
        error_ns = interval_ns - ticks * self.period_ns
        # a tick that was seen late is not one that strayed
        self._stray_ns += (max(abs(error_ns) - unsure_ns, 0) - self._stray_ns) * _LEARNING_SHARE
        self.period_ns += error_ns / ticks * _LEARNING_SHARE / 4
