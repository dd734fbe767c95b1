"""Where in a step its phases' work was, and their share of its energy; an apportionment by time, no measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stepmeter.analysis.energy.exact import Ints
from stepmeter.analysis.energy.sharing import Windows

_BUSY = ("h2d", "forward", "backward", "optimizer")
"""Phases in the order of a step; the input wait before them is the device's idle time as a rule."""

OTHER = "other"
"""What no phase covers."""


@dataclass(frozen=True, slots=True)
class BusyPhases:
    """The phases of a rank's steps.

    Attributes:
        windows: When each busy phase ran, taken to follow one another without gaps; kinds do not overlap.
        times_ns: Time of each phase in each step, by phase.
        duration_ns: Durations of the steps.
        has_gpu_clock: Whether those times are of the device's clock.
    """

    windows: tuple[Windows, ...]
    times_ns: Mapping[str, Ints]
    duration_ns: Ints
    has_gpu_clock: bool

    def apportion(self, energy_mj: Ints, total_mj: int) -> dict[str, int]:
        """Share energy out by the phases' time.

        Args:
            energy_mj: Energy of each step in mJ.
            total_mj: Their sum.

        Returns:
            mJ by phase, `other` included; they add up to `total_mj`.
        """
        covered_ns = np.sum(list(self.times_ns.values()), axis=0)
        whole_ns = np.maximum(np.maximum(self.duration_ns, covered_ns), 1).astype(float)
        shares = {name: round(float((energy_mj * (ns / whole_ns)).sum())) for name, ns in self.times_ns.items()}
        shares = {name: mj for name, mj in shares.items() if self.times_ns[name].any()}
        return {**shares, OTHER: total_mj - sum(shares.values())}


def phases_of(start_ns: Ints, end_ns: Ints, columns: Mapping[str, Ints], shift_ns: int) -> BusyPhases:
    """Lay the phases out on the clock.

    Args:
        start_ns: Starts of the steps in ns, in the order of their ends.
        end_ns: Ends of the steps in ns.
        columns: Rows of `sql/energy_steps.sql`.
        shift_ns: What was added to the steps' times.

    Returns:
        The phases; work begins where the device's clock says, else after the input wait.
    """
    known = columns["device_start_ns"] > 0
    begin = np.where(known, columns["device_start_ns"] + shift_ns, start_ns + columns["input_wait_ns"])
    windows = []
    last_end = np.concatenate([begin[1:], end_ns[-1:]])  # work of one step ends before that of the next begins
    for name in _BUSY:
        end = np.minimum(begin + columns[f"{name}_ns"], np.maximum(last_end, begin))
        if columns[f"{name}_ns"].any():
            windows.append(Windows(begin, end))
        begin = end
    times = {name: columns[f"{name}_ns"] for name in ("input_wait", *_BUSY)}
    has_gpu_clock = bool(columns["has_gpu_clock"].all()) if len(start_ns) else False
    return BusyPhases(_ascending(windows), times, end_ns - start_ns, has_gpu_clock)


def _ascending(windows: list[Windows]) -> tuple[Windows, ...]:
    """None where the times contradict their order, as clocks that disagree make them: then nothing is fitted."""
    if any((one.start_ns[1:] < one.end_ns[:-1]).any() for one in windows):
        return ()
    return tuple(windows)
