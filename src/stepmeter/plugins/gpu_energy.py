"""Energy of the whole GPU over a span, from the moves of its energy counter."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

from stepmeter.capture.channel import Channel
from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.run import new_run_id
from stepmeter.plugins.overlap import Overlaps
from stepmeter.samplers.energy import EnergySampling
from stepmeter.samplers.feed import EnergyFeed, Mark, feed_of
from stepmeter.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.capture.span import Span

_MJ_PER_J: Final = 1000
_IDLE_NS: Final = 2 * NS_PER_S


class GpuEnergy:
    """Joules that the device took during each span, other processes included, with the bounds that they lie between.

    The counter moves each 10 to 100 ms; what a span has of an interval between two moves is shared out evenly, and
    what came after the last move is put at the power just before, so that a short span has wide bounds. The energy of
    a span contains that of the spans in it. Spans side by side on one device each have all of it, and
    `gpu_energy_share` says which part would be theirs alone: 0.25 where four ran at once.

    The counter is followed by the run's own thread; where none does, a thread of the plugin follows it while spans
    are open and ends two seconds after the last.

    Args:
        index: Which of the visible GPUs, as CUDA numbers them; found by UUID.
        find_uuid: Says which device it is, by UUID; NVML when None.
    """

    def __init__(self, index: int = 0, find_uuid: Callable[[], str] | None = None) -> None:
        self._find_uuid = find_uuid or (lambda: _uuid_of(index))
        self._uuid = ""

    def start(self, span: Span) -> None:
        """Begin to measure a span.

        Raises:
            RuntimeError: There is no GPU to read; said once.
        """
        if not self._uuid:
            self._uuid = self._find_uuid()
        _devices.setdefault(self._uuid, _Device(self._uuid)).begin(span)

    def end(self, span: Span) -> dict[str, float]:
        """Give what was measured.

        Returns:
            `gpu_energy_j`, `gpu_energy_lower_j` and `gpu_energy_upper_j` (not on a board without a counter), and
            `gpu_energy_share`; nothing while the counter's rhythm is not known, which takes its second move.
        """
        device = _devices.get(self._uuid)
        return {} if device is None else device.end(span)

    def close(self) -> None:
        """End the plugin's own thread; spans that are open now give nothing."""
        device = _devices.get(self._uuid)
        if device is not None:
            device.close()


class _Device:
    """One device, for all plugins of the process."""

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._feed: EnergyFeed = feed_of(uuid)
        self._marks: dict[int, Mark] = {}
        self._overlaps = Overlaps()
        self._lock = threading.Lock()
        self._own: EnergySampling | None = None
        self._unused_ns: int | None = None

    def begin(self, span: Span) -> None:
        now_ns = monotonic_ns()
        with self._lock:
            self._unused_ns = None
            self._overlaps.begin(id(span), _around(span), now_ns)
            self._marks[id(span)] = self._feed.mark(now_ns)
            if self._own is None and not self._feed.followers:
                self._own = EnergySampling(
                    lambda: self._uuid, new_run_id(), Channel(1), _ignore, watches_processes=False, wanted=self._wanted
                )
                self._own.start()

    def end(self, span: Span) -> dict[str, float]:
        with self._lock:
            mark = self._marks.pop(id(span), None)
            if mark is None:
                return {}
            share = self._overlaps.end(id(span), span.end_ns)
            if not self._marks:
                self._unused_ns = span.end_ns
        found = self._feed.since(mark, span.end_ns)
        if found is None:
            return {}
        metrics = {"gpu_energy_j": found.value_mj, "gpu_energy_lower_j": found.lower_mj}
        metrics["gpu_energy_upper_j"] = found.upper_mj
        joules = {key: round(value / _MJ_PER_J, 6) for key, value in metrics.items() if value is not None}
        return {**joules, "gpu_energy_share": round(share, 4)}

    def close(self) -> None:
        with self._lock:
            self._marks.clear()
            self._overlaps.clear()
            own, self._own = self._own, None
        if own is not None:
            own.stop()

    def _wanted(self) -> bool:
        """Whether the plugin's own thread goes on; asked by that thread."""
        with self._lock:
            unused_ns = self._unused_ns
            idle = unused_ns is not None and monotonic_ns() - unused_ns > _IDLE_NS
            if idle or self._own is None or self._feed.followers > 1:  # the run's own thread follows it by now
                self._own = None
                return False
        return True


_devices: dict[str, _Device] = {}


os.register_at_fork(after_in_child=_devices.clear)  # their locks may be held by threads that a child does not have


def _uuid_of(index: int) -> str:
    from stepmeter.devices.nvml import find_device

    lookup = find_device(os.environ, index)
    if lookup.device is None:
        raise RuntimeError(f"no GPU to read: {lookup.reason}")
    return lookup.device.uuid


def _around(span: Span) -> list[int]:
    """The spans around one, innermost first."""
    found, parent = [], span.parent
    while parent is not None:
        found.append(id(parent))
        parent = parent.parent
    return found


def _ignore(_: str, __: BaseException) -> None:
    """A device that can't be read leaves spans without energy, and nothing else."""
