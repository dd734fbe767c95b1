"""A device that is behind the host: events that happen when it gets there, late, out of order, or fail."""

from __future__ import annotations

from stepmeter.capture.clock import monotonic_ns
from stepmeter.instrumentation.cuda import DeviceTimer

MS = 1_000_000


class FakeDevice:
    """A device whose clock is its own: it runs from an arbitrary zero and tells float32 milliseconds of differences.

    Work is queued by the test with `work`; an event recorded now happens when the queue has got to it. `run` lets the
    device get so far. As with CUDA, an event of which the device has not got that far answers `query` with False and
    `elapsed_time` with an error, and so does one that was never recorded.
    """

    def __init__(self) -> None:
        self.queued_ns = 7_000_000_000
        self.done_ns = 7_000_000_000
        self.events_made = 0
        self.broken: set[int] = set()
        self.no_more_events = False
        self.records = 0

    def work(self, milliseconds: float) -> None:
        """Queue work."""
        self.queued_ns += round(milliseconds * MS)

    def run(self, milliseconds: float | None = None) -> None:
        """Let the device work off so much, or all that is queued."""
        target_ns = self.queued_ns if milliseconds is None else self.done_ns + round(milliseconds * MS)
        self.done_ns = min(target_ns, self.queued_ns)

    def timer(self, capturing: bool = False) -> DeviceTimer:
        """A timer of this device."""
        return DeviceTimer("fake:0", lambda: FakeEvent(self), lambda _device: self, lambda: capturing)


class FakeEvent:
    """An event; a broken one raises whatever it is asked."""

    def __init__(self, device: FakeDevice) -> None:
        if device.no_more_events:
            raise RuntimeError("CUDA error: out of memory")
        self.device = device
        self.at_ns: int | None = None
        self.number = device.events_made
        device.events_made += 1

    def record(self, stream: FakeDevice) -> None:
        assert stream is self.device
        self.device.records += 1
        self.at_ns = self.device.queued_ns
        self.recorded_ns = monotonic_ns()

    def query(self) -> bool:
        self._check()
        return self.at_ns is None or self.at_ns <= self.device.done_ns

    def elapsed_time(self, end: FakeEvent) -> float:
        self._check()
        end._check()
        if self.at_ns is None or end.at_ns is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        return (end.at_ns - self.at_ns) / MS

    def _check(self) -> None:
        if self.number in self.device.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
