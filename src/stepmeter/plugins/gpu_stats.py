"""Utilization and memory of the whole GPU over a span, from samples in the background."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.capture.span import Span

_BYTES_PER_MB: Final = 1 << 20
_IDLE_S: Final = 1.0


class Source(Protocol):
    """Something that reads the device."""

    def read(self, at_ns: int) -> list[Reading]:
        """Read once."""
        ...


class _Window:
    """What was sampled during one open span."""

    __slots__ = ("count", "memory", "utilization")

    def __init__(self) -> None:
        self.count = 0
        self.utilization = self.memory = 0.0

    def take(self, utilization: float, memory: float) -> None:
        self.count += 1
        self.utilization += utilization
        self.memory = max(self.memory, memory)


class GpuStats:
    """Mean utilization and peak memory of the device, other processes included, over each span's whole length.

    A thread samples while spans are open, and ends a second after the last. A span shorter than the interval is one
    live reading, whose utilization is NVML's own average of before.

    Args:
        index: Which of the visible GPUs, as CUDA numbers them; found by UUID.
        interval: Time between samples, in s.
        make_source: Makes what reads the device; NVML when None.
    """

    def __init__(self, index: int = 0, interval: float = 0.1, make_source: Callable[[], Source] | None = None) -> None:
        self._interval_s = interval
        self._make_source = make_source or (lambda: _nvml_source(index))
        self._source: Source | None = None
        self._pid = os.getpid()
        self._windows: dict[int, _Window] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, span: Span) -> None:
        """Begin to collect for a span.

        Raises:
            RuntimeError: The device can't be read, or the plugin was made before a fork; said once.
        """
        if os.getpid() != self._pid:  # its lock may be held by a thread that is not here
            raise RuntimeError("made before a fork; a child makes plugins of its own")
        with self._lock:
            if self._source is None:
                self._source = self._make_source()
            self._windows[id(span)] = _Window()
            if self._thread is None:
                self._stop.clear()
                self._thread = threading.Thread(target=self._run, name="stepmeter-gpu-stats", daemon=True)
                self._thread.start()

    def end(self, span: Span) -> dict[str, float]:
        """Give what was collected.

        Returns:
            `gpu_percent` (mean) and `gpu_mem_used_mb` (peak); nothing for a span that was not seen to start.
        """
        if os.getpid() != self._pid:
            return {}
        with self._lock:
            window = self._windows.pop(id(span), None)
        if window is None or self._source is None:
            return {}
        if not window.count:
            self._sample_into([window])
        if not window.count:
            return {}
        return {
            "gpu_percent": round(100 * window.utilization / window.count, 1),
            "gpu_mem_used_mb": round(window.memory / _BYTES_PER_MB, 3),
        }

    def close(self) -> None:
        """End the thread; spans that are open now have no complete measurement and give none."""
        with self._lock:
            self._windows.clear()
            thread = self._thread
        self._stop.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(2 * self._interval_s + _IDLE_S)

    def _run(self) -> None:
        idle_s = 0.0
        while not self._stop.wait(self._interval_s):
            with self._lock:
                windows = list(self._windows.values())
                idle_s = 0.0 if windows else idle_s + self._interval_s
                if idle_s >= _IDLE_S:
                    break
            if windows and not self._sample_into(windows):
                with self._lock:
                    self._windows.clear()  # part of a window is not passed off as all of it
        with self._lock:
            self._thread = None

    def _sample_into(self, windows: list[_Window]) -> bool:
        source = self._source
        try:
            found = {} if source is None else {reading.metric: reading.value for reading in source.read(monotonic_ns())}
        except Exception:  # a driver that went away
            return False
        utilization = found.get(metrics.GPU_UTILIZATION.name)
        memory = found.get(metrics.GPU_MEMORY_USAGE.name)
        if utilization is None or memory is None:
            return False
        with self._lock:
            for window in windows:
                window.take(utilization, memory)
        return True


def _nvml_source(index: int) -> Source:
    from stepmeter.devices.nvml import find_device
    from stepmeter.samplers.nvml import GpuSampler

    lookup = find_device(os.environ, index)
    if lookup.device is None:
        raise RuntimeError(f"no GPU to read: {lookup.reason}")
    uuid = lookup.device.uuid
    source: Any = GpuSampler(lambda: uuid)
    found: Source = source
    return found
