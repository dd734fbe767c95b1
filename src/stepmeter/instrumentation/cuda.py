"""The device's clock: pairs of events on the current stream, read later and never waited for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

import torch

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.region import DeviceTimes, Region
from stepmeter.conventions.phases import INPUT_WAIT, PHASES
from stepmeter.instrumentation.axis import DeviceAxis
from stepmeter.instrumentation.patch import Patch

_INPUT_WAIT: Final = PHASES.index(INPUT_WAIT)
_NS_PER_MS: Final = 1_000_000
_POOL_LIMIT: Final = 4096


Away = tuple[int, Any, Any]
"""(start on the monotonic clock in ns, event at the start, event at the end) of work that is nobody's."""


class DeviceTimer:
    """Marks moments on a device and reads them later.

    Args:
        device: The device.
        make_event: Makes an event that can tell times.
        current_stream: Gives the stream on which the program works on that device.
        is_capturing: Whether that stream records a CUDA graph, in which an event would become a node.
    """

    __slots__ = (
        "_away",
        "_axis",
        "_current_stream",
        "_failed",
        "_is_capturing",
        "_lock",
        "_make",
        "_pool",
        "captures",
        "device",
    )

    def __init__(
        self,
        device: Any,
        make_event: Callable[[], Any] = lambda: torch.cuda.Event(enable_timing=True),
        current_stream: Callable[[Any], Any] = torch.cuda.current_stream,
        is_capturing: Callable[[], bool] = torch.cuda.is_current_stream_capturing,
    ) -> None:
        self.device = device
        self.captures = 0
        self._make = make_event
        self._current_stream = current_stream
        self._is_capturing = is_capturing
        self._pool: list[Any] = []
        self._away: list[Away] = []
        self._failed = 0
        self._axis = DeviceAxis(_elapsed_ns)
        self._lock = threading.Lock()

    def mark(self) -> Any | None:
        """Mark this moment of the current stream.

        Returns:
            The event; None when there can be none.
        """
        try:
            if self._is_capturing():
                return None
            pool = self._pool
            event = pool.pop() if pool else self._make()
            event.record(self._current_stream(self.device))
        except Exception:
            self._failed += 1
            return None
        return event

    def pair(self, begin: Any) -> tuple[Any, Any] | None:
        """End a region.

        Args:
            begin: The event at its start.

        Returns:
            The region's pair; None when it is lost.
        """
        end = self.mark()
        return None if end is None else (begin, end)

    def away(self, start_ns: int, begin: Any) -> None:
        """Work inside a step that is nobody's has ended: an evaluation between two micro-batches.

        Args:
            start_ns: When it began, monotonic.
            begin: The event at its start, or None.
        """
        pair = None if begin is None else self.pair(begin)
        if pair is not None:
            self._away.append((start_ns, *pair))

    def ended(self, end_event: Any = None) -> DeviceStep:
        """End a step.

        Args:
            end_event: The event at its end, if a region has marked that moment; None = now.

        Returns:
            Its times, to be resolved.
        """
        away, self._away = self._away, []
        if end_event is not None:
            return DeviceStep(self, end_event, shared=True, away=away)
        return DeviceStep(self, self.mark(), shared=False, away=away)

    def graph_capture_begins(self) -> None:
        """A query from another thread would break the capture of a CUDA graph: none begins from now on."""
        with self._lock:
            self.captures += 1

    def graph_capture_ended(self) -> None:
        """The device may be asked again."""
        with self._lock:
            self.captures -= 1

    def read(self, step: DeviceStep, regions: list[Region]) -> DeviceTimes | None:
        """Read a step's times, if the device has done it.

        Args:
            step: The step.
            regions: Its regions.

        Returns:
            The times; None as long as it has not, or while a graph is captured.
        """
        events = [event for region in regions if region[3] is not None for event in region[3]]
        events += [event for _, *pair in step.away for event in pair]
        with self._lock:
            if self.captures or not all(map(_is_done, [step.end, *events])):
                return None
            return self._times(step, regions)

    def _times(self, step: DeviceStep, regions: list[Region]) -> DeviceTimes:
        done_ns = monotonic_ns()
        regions_ns = [None if region[3] is None else _elapsed_or_none(*region[3]) for region in regions]
        lost = sum(ns is None and region[3] is not None for ns, region in zip(regions_ns, regions, strict=True))
        lost, self._failed = lost + self._failed, 0
        timed = [region for region in regions if region[3] is not None]
        first = min(timed, key=lambda region: region[1], default=None)
        start_ns = end_ns = unneeded = None
        if first is not None and step.end is not None:
            try:
                start_ns, unneeded = self._axis.place(first[3][0], first[1], done_ns)
                end_ns = start_ns + _elapsed_ns(first[3][0], step.end)
            except Exception:
                self._axis.forget()
                start_ns = end_ns = None
        traced_ns = _traced_ns(step.end, regions, regions_ns)
        if traced_ns is not None and step.away:
            traced_ns = max(0, traced_ns - _away_ns(step.away, regions))
        self._recycle(step, timed, first, unneeded)
        return DeviceTimes(tuple(regions_ns), traced_ns, start_ns, end_ns, lost)

    def _recycle(self, step: DeviceStep, timed: list[Region], first: Region | None, unneeded: Any) -> None:
        kept = None if first is None else first[3][0]  # it may have become the anchor
        events = [event for region in timed for event in region[3] if event is not kept]
        events += [event for _, *pair in step.away for event in pair]
        if unneeded is not None:
            events.append(unneeded)
        if step.end is not None and not step.shared:
            events.append(step.end)
        if len(self._pool) < _POOL_LIMIT:
            self._pool += events


class DeviceStep:
    """A step whose device times are not known yet.

    Args:
        timer: Whose events they are.
        end: The event at the step's end; None when it is lost.
        shared: Whether a region owns that event too.
        away: What was nobody's, in this step or in one that was given up before it.
    """

    __slots__ = ("_timer", "away", "end", "shared")

    def __init__(self, timer: DeviceTimer, end: Any, *, shared: bool, away: list[Away]) -> None:
        self._timer = timer
        self.end = end
        self.shared = shared
        self.away = away

    def resolve(self, regions: list[Region]) -> DeviceTimes | None:
        """Read them, without waiting for the device.

        Args:
            regions: The step's regions.

        Returns:
            The times; None as long as the device has not done all of the step.
        """
        return self._timer.read(self, regions)


def patches(timer: DeviceTimer, captured: Callable[[], None]) -> list[Patch]:
    """The patches on the capture of CUDA graphs.

    Args:
        timer: The timer that must not ask meanwhile.
        captured: Called at the beginning of a capture: the step records a graph.

    Returns:
        One on its beginning and one on its end.
    """

    def begins(original: Any) -> Any:
        def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
            timer.graph_capture_begins()
            try:
                captured()
                return original(self, *args, **kwargs)
            except BaseException:
                timer.graph_capture_ended()
                raise

        return capture_begin

    def ends(original: Any) -> Any:
        def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(self, *args, **kwargs)
            finally:
                timer.graph_capture_ended()

        return capture_end

    return [Patch(torch.cuda.CUDAGraph, "capture_begin", begins), Patch(torch.cuda.CUDAGraph, "capture_end", ends)]


def _is_done(event: Any) -> bool:
    """Whether the device has passed an event; one that fails has nothing left to wait for."""
    try:
        return event is None or bool(event.query())
    except Exception:
        return True


def _elapsed_ns(begin: Any, end: Any) -> int:
    elapsed_ms: float = begin.elapsed_time(end)
    return round(elapsed_ms * _NS_PER_MS)


def _elapsed_or_none(begin: Any, end: Any) -> int | None:
    try:
        return _elapsed_ns(begin, end)
    except Exception:
        return None


def _away_ns(away: list[Away], regions: list[Region]) -> int:
    """What of a step's device time was nobody's; what began before its first region was another step's."""
    first_ns = min(region[1] for region in regions)
    return sum(_elapsed_or_none(begin, end) or 0 for start_ns, begin, end in away if start_ns >= first_ns)


def _traced_ns(end: Any, regions: list[Region], regions_ns: list[int | None]) -> int | None:
    """From the end of the first input wait to the step's end, less the waits inside, with the copies inside waits."""
    order = sorted(range(len(regions)), key=lambda index: (regions[index][1], -regions[index][2]))
    waits = [index for index in order if regions[index][0] == _INPUT_WAIT]
    inside_ns = [regions_ns[index] for index in waits[1:]]
    first = waits[0] if waits else next(iter(order), None)
    if end is None or first is None or regions[first][3] is None or None in inside_ns:
        return None
    whole_ns = _elapsed_or_none(regions[first][3][1 if waits else 0], end)
    copied_ns = sum(regions_ns[index] or 0 for index in _within_waits(order, regions))
    return None if whole_ns is None else max(0, whole_ns - sum(ns or 0 for ns in inside_ns) + copied_ns)


def _within_waits(order: list[int], regions: list[Region]) -> list[int]:
    """Regions that lie in an input wait: a loader, such as Accelerate's, copies its batch to the device itself."""
    within, wait_ends_ns = [], 0
    for index in order:
        phase, start_ns, end_ns, _ = regions[index]
        if phase == _INPUT_WAIT:
            wait_ends_ns = end_ns
        elif start_ns < wait_ends_ns:
            within.append(index)
    return within
