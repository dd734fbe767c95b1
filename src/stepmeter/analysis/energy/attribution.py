"""Energy of windows on one device: by its counter where that covers them, else by its power samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stepmeter.analysis.energy.counter import Bools, CounterTimeline
from stepmeter.analysis.energy.exact import DOUBLED_PER_MJ, Ints
from stepmeter.analysis.energy.model import METHODS, Bases, DeviceKind, Estimates
from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.analysis.energy.sharing import Sharing, Windows, share_out

LIMIT_HEADROOM = 1.1
"""A board exceeds its enforced limit for moments by up to so much.

Source: research on transients above the limit; where a tick shows more, that counts."""

UNKNOWN_LIMIT_HEADROOM = 1.5
"""The same above the greatest power seen, where the limit is not known."""

TROUGH_SHARE = 0.5
"""Readings are means over a window, and a trough shorter than that is deeper than they show: the floor is put at so
much of the least reading."""

MODULES = ("GH200",)
"""Product names of boards whose counter is of the whole module.

Source: zeus pull request 172; nvml.h, NVML_POWER_SCOPE_MODULE."""

HOST_HEADROOM = 4.0
"""What a CPU package may draw for moments, of its greatest mean over a tick: it wakes to full load at once."""

_EXACT, _INTERPOLATED, _FIT, _INTEGRAL, _UNAVAILABLE = range(len(METHODS))


@dataclass(frozen=True, slots=True)
class DeviceReadings:
    """All that was read of one device.

    Attributes:
        hw_id: UUID of the device.
        counter: Ticks of its energy counter; None with fewer than two.
        power: Its power samples; None with fewer than two.
        limit_mw: Enforced power limit in mW; None when not known.
        other_processes: Whether a process of nobody we know of used it.
        throttled_share: Share of readings at which power or heat held its clocks down; None when nobody looked.
        kind: What it is.
        is_module: Whether its counter is of the whole module, with its CPU.
    """

    hw_id: str
    counter: CounterTimeline | None
    power: PowerTimeline | None
    limit_mw: int | None = None
    other_processes: bool = False
    throttled_share: float | None = None
    kind: DeviceKind = "gpu"
    is_module: bool = False

    @property
    def span_ns(self) -> tuple[int, int]:
        """First and last moment that the steps' basis covers."""
        if self.counter is not None:
            return int(self.counter.tick_ns[0]), int(self.counter.tick_ns[-1])
        if self.power is not None:
            return int(self.power.time_ns[0]), int(self.power.time_ns[-1])
        return 0, 0

    def power_bounds_mw(self) -> tuple[float, float]:
        """Power that the device never goes below, and never above."""
        seen = [] if self.counter is None else [self.counter.mean_power_mw()]
        if self.power is not None:
            seen.append(self.power.power_mw.astype(float))
        readings = np.concatenate(seen) if seen else np.zeros(1)
        least, most = float(readings.min(initial=np.inf)), float(readings.max(initial=0.0))
        if self.kind != "gpu":
            return 0.0, most * HOST_HEADROOM
        if self.limit_mw is None:
            return least * TROUGH_SHARE, most * UNKNOWN_LIMIT_HEADROOM
        return least * TROUGH_SHARE, max(self.limit_mw, most) * LIMIT_HEADROOM

    def sharing(self, *loads: Windows) -> Sharing | None:
        """How the counter's energy is shared out inside ticks.

        Args:
            loads: When the device did what; kinds of work do not overlap.

        Returns:
            None without a counter.
        """
        if self.counter is None:
            return None
        return share_out(self.counter, loads, *self.power_bounds_mw())

    def bases(self) -> Bases:
        """Its energy on both bases, over the time that both cover."""
        if self.counter is None or self.power is None:
            counter_mj = None if self.counter is None else int(self.counter.grown_mj[-1])
            return Bases(counter_mj, None if self.power is None else self.power.total() // DOUBLED_PER_MJ)
        start_ns = max(self.counter.tick_ns[0], self.power.time_ns[0])
        end_ns = min(self.counter.tick_ns[-1], self.power.time_ns[-1])
        if end_ns <= start_ns or self.counter.is_reset.any():
            return Bases(int(self.counter.grown_mj[-1]), None)
        both = np.array([start_ns, end_ns])
        even = share_out(self.counter, (), 0.0, 1.0).until(both)
        integral_mj = np.diff(self.power.until(both))[0]
        return Bases(int(even[1] - even[0]), round(float(integral_mj)))


def estimate(readings: DeviceReadings, start_ns: Ints, end_ns: Ints, sharing: Sharing | None) -> Estimates:
    """Energy of windows.

    Args:
        readings: Of the device.
        start_ns: Starts in ns.
        end_ns: Ends in ns, none before its start.
        sharing: Of the device's counter; None without one.

    Returns:
        An estimate for each window, all on one basis: the counter's where there is one, and else integrated power's.
        Those that no reading covers are unavailable.
    """
    count = len(start_ns)
    absent = np.full(count, -1, dtype=np.int64)
    found = Estimates(
        absent, absent.copy(), absent.copy(), np.full(count, _UNAVAILABLE), np.zeros(count, dtype=np.int64)
    )
    if sharing is None and readings.power is not None:
        _by_power(readings.power, start_ns, end_ns, found)
    if sharing is not None:
        covered = sharing.counter.covers(start_ns, end_ns)
        if covered.any():
            _by_counter(readings, sharing, start_ns, end_ns, covered, found)
    return found


def _by_counter(
    readings: DeviceReadings, sharing: Sharing, start_ns: Ints, end_ns: Ints, covered: Bools, into: Estimates
) -> None:
    start_ns, end_ns = start_ns[covered], end_ns[covered]
    counter = sharing.counter
    value = sharing.until(end_ns) - sharing.until(start_ns)
    lower, upper = counter.bounds(start_ns, end_ns, *readings.power_bounds_mw())
    first, last = counter.intervals_of(start_ns, end_ns)
    on_ticks = _on_tick(counter, start_ns, first) & _on_tick(counter, end_ns, last)
    fitted = sharing.is_fitted[first] | sharing.is_fitted[last]
    into.value_mj[covered] = value
    into.lower_mj[covered] = np.minimum(np.floor(lower).astype(np.int64), value)
    into.upper_mj[covered] = np.maximum(np.ceil(upper).astype(np.int64), value)
    into.method[covered] = np.where(on_ticks, _EXACT, np.where(fitted, _FIT, _INTERPOLATED))
    into.ticks[covered] = np.searchsorted(counter.tick_ns, end_ns, side="right") - np.searchsorted(
        counter.tick_ns, start_ns, side="left"
    )


def _on_tick(counter: CounterTimeline, at_ns: Ints, interval: Ints) -> Bools:
    near_ns = np.minimum(
        np.abs(at_ns - counter.tick_ns[interval]) - counter.gap_ns[interval] // 2,
        np.abs(at_ns - counter.tick_ns[interval + 1]) - counter.gap_ns[interval + 1] // 2,
    )
    on_tick: Bools = near_ns <= 0
    return on_tick


def _by_power(power: PowerTimeline, start_ns: Ints, end_ns: Ints, into: Estimates) -> None:
    """Between whole segments inside and whole segments touched; a board without a counter allows no better."""
    covered = (start_ns >= power.time_ns[0]) & (end_ns <= power.time_ns[-1])
    start_ns, end_ns = start_ns[covered], end_ns[covered]
    value = np.rint(power.until(end_ns)).astype(np.int64) - np.rint(power.until(start_ns)).astype(np.int64)
    outer_start = power.time_ns[np.maximum(np.searchsorted(power.time_ns, start_ns, side="right") - 1, 0)]
    outer_end = power.time_ns[np.minimum(np.searchsorted(power.time_ns, end_ns), len(power.time_ns) - 1)]
    lower = power.whole_segments(start_ns, end_ns).floored_mj()
    upper = power.whole_segments(outer_start, outer_end).floored_mj() + 1
    into.value_mj[covered] = value
    into.lower_mj[covered] = np.minimum(lower, value)
    into.upper_mj[covered] = np.maximum(upper, value)
    into.method[covered] = _INTEGRAL
