"""What torch's CUDA allocator held during a span."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from stepmeter.capture.span import Span

_BYTES_PER_MB: Final = 1 << 20


class Allocator(Protocol):
    """The allocator's statistics of one device."""

    def read(self) -> tuple[int, int]:
        """What is allocated now and its peak since the last reset, in bytes."""
        ...

    def reset(self) -> None:
        """Set the peak to what is allocated now."""


class _Peaks:
    """The peaks of all open spans of one device, although the allocator has only one."""

    def __init__(self, allocator: Allocator) -> None:
        self._allocator = allocator
        self._lock = threading.Lock()
        self._open: dict[int, tuple[int, int]] = {}  # by span: allocated at its start, peak so far

    def begin(self, key: int) -> None:
        with self._lock:
            allocated, peak = self._allocator.read()
            for each, (at_start, so_far) in self._open.items():
                self._open[each] = (at_start, max(so_far, peak))
            self._allocator.reset()
            self._open[key] = (allocated, allocated)

    def end(self, key: int) -> tuple[int, int] | None:
        """Peak and what stayed, in bytes; None for a span that was not seen to start."""
        with self._lock:
            started = self._open.pop(key, None)
            if started is None:
                return None
            allocated, peak = self._allocator.read()
            return max(started[1], peak), allocated - started[0]


_peaks: dict[int, _Peaks] = {}
os.register_at_fork(after_in_child=_peaks.clear)  # their locks may be held by threads that a child does not have


class TorchMemory:
    """Peak of what tensors held during a span, and what the span kept.

    The peak is absolute: what was held before counts. The allocator's peak is reset where a span starts; peaks of
    steps, of the spans around and of those that overlap stay right. What the program reads of `max_memory_allocated`
    begins anew there.

    Args:
        device: A CUDA device as torch names it; None = the one that is current when a span starts.
    """

    def __init__(self, device: Any = None) -> None:
        self._device = device
        self._of_span: dict[int, _Peaks] = {}

    def start(self, span: Span) -> None:
        """Begin to measure a span on the device of this moment.

        Raises:
            RuntimeError: Without torch or CUDA; said once.
        """
        peaks = peaks_of(self._device)
        self._of_span[id(span)] = peaks
        peaks.begin(id(span))

    def end(self, span: Span) -> dict[str, float]:
        """Give what was measured.

        Returns:
            `gpu_mem_peak_mb` and `gpu_mem_delta_mb`; nothing for a span that was not measured.
        """
        peaks = self._of_span.pop(id(span), None)
        measured = None if peaks is None else peaks.end(id(span))
        if measured is None:
            return {}
        peak, kept = measured
        return {
            "gpu_mem_peak_mb": round(peak / _BYTES_PER_MB, 3),
            "gpu_mem_delta_mb": round(kept / _BYTES_PER_MB, 3),
        }


def peaks_of(device: Any) -> _Peaks:
    """The peaks of a device; shared by all plugins, threads and tasks.

    Args:
        device: As torch names it; None = the current one.

    Returns:
        The peaks.

    Raises:
        RuntimeError: There is no CUDA.
    """
    index = _index(device)
    return _peaks.get(index) or _peaks.setdefault(index, _Peaks(_TorchAllocator(index)))


def _index(device: Any) -> int:
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("no CUDA device; TorchMemory measures nothing here")
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return torch.cuda.current_device() if index is None else int(index)


class _TorchAllocator:
    """The public functions, which our own patches watch: a reset here never takes a peak from a step."""

    def __init__(self, index: int) -> None:
        self._index = index

    def read(self) -> tuple[int, int]:
        import torch

        stats = torch.cuda.memory_stats_as_nested_dict(self._index)
        held = stats.get("allocated_bytes", {}).get("all", {})
        return int(held.get("current", 0)), int(held.get("peak", 0))

    def reset(self) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats(self._index)
