"""Peaks of the device's allocator per step, while the program's own view of them stays what it was.

The allocator has one set of peaks. Resetting them at each step would change what the program reads, so its readers add
the peaks that we have taken away since its own last reset.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from stepmeter.capture.step import StepCapture
from stepmeter.instrumentation.patch import Patch

_PEAK: Final = "peak"
Fault = Callable[[str, BaseException], None]


class PeakMemory:
    """The peaks of one device, step by step.

    Args:
        index: Index of the device.
        hw_id: UUID of the device, or None.
        read: Gives the allocator's nested statistics of a device.
        reset: Sets its peaks to what is held now.

    Attributes:
        index: Index of the device.
        dirty: Whether the peaks may be those of nobody's work; the next step resets them.
    """

    __slots__ = ("_hw_id", "_read", "_reset", "_since_user_reset", "_taken", "dirty", "index")

    def __init__(
        self,
        index: int,
        hw_id: str | None,
        read: Callable[[int], dict[str, Any]],
        reset: Callable[[int], None],
    ) -> None:
        self.index = index
        self.dirty = True
        self._hw_id = hw_id
        self._read = read
        self._reset = reset
        self._since_user_reset: dict[tuple[str, ...], int] = {}
        self._taken = (0, 0)

    def opened(self) -> None:
        """A step's memory is measured from here."""
        _keep(self._read(self.index), (), self._since_user_reset)
        self._reset(self.index)
        self._taken = (0, 0)
        self.dirty = False

    def closed(self, capture: StepCapture) -> None:
        """A step's memory is measured up to here, and the next one's from here.

        Args:
            capture: The step; what it has of this step already is kept where it is higher.
        """
        allocated_bytes, reserved_bytes = self._take()
        before = capture.memory
        if before is not None:
            allocated_bytes, reserved_bytes = max(allocated_bytes, before[1]), max(reserved_bytes, before[2])
        capture.record(self._hw_id, allocated_bytes, reserved_bytes)
        self._reset(self.index)
        self._taken = (0, 0)

    def _take(self) -> tuple[int, int]:
        stats = self._read(self.index)
        _keep(stats, (), self._since_user_reset)
        taken = (_peak(stats, "allocated_bytes"), _peak(stats, "reserved_bytes"))
        self._taken = (max(self._taken[0], taken[0]), max(self._taken[1], taken[1]))
        return self._taken

    def user_resets(self) -> None:
        """The program is about to reset the peaks: the step keeps what it had, the program's view begins anew."""
        self._take()
        self._since_user_reset.clear()

    def add_to(self, stats: Any, path: tuple[str, ...] = ()) -> None:
        """Make statistics show the peaks since the program's own last reset.

        Args:
            stats: Nested statistics, changed in place.
            path: Where they stand.
        """
        if _PEAK in stats:
            stats[_PEAK] = max(stats[_PEAK], self._since_user_reset.get(path, 0))
            return
        for name, inner in stats.items():
            if isinstance(inner, dict):
                self.add_to(inner, (*path, name))

    def add_to_flat(self, stats: Any) -> None:
        """Make flat statistics show the same.

        Args:
            stats: Statistics by dotted name, changed in place.
        """
        for path, peak in self._since_user_reset.items():
            name = ".".join((*path, _PEAK))
            if name in stats:
                stats[name] = max(stats[name], peak)


def _keep(stats: dict[str, Any], path: tuple[str, ...], kept: dict[tuple[str, ...], int]) -> None:
    peak = stats.get(_PEAK)
    if peak is not None:
        if peak > kept.get(path, 0):
            kept[path] = peak
        return
    for name, inner in stats.items():
        if isinstance(inner, dict):
            _keep(inner, (*path, name), kept)


def _peak(stats: dict[str, Any], name: str) -> int:
    return int(stats[name]["all"][_PEAK])


def of_device(device: torch.device, hw_id: str | None) -> PeakMemory:
    """The peaks of a CUDA device.

    Args:
        device: The device; without an index the current one.
        hw_id: Its UUID, or None.

    Returns:
        Its peaks; they read the allocator past our own patches.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    allocator: Any = torch._C  # noqa: SLF001 - what torch.cuda.memory calls, one call instead of a flattened dict
    return PeakMemory(index, hw_id, allocator._cuda_memoryStats, allocator._cuda_resetPeakMemoryStats)  # noqa: SLF001


def patches(watched: Callable[[], PeakMemory | None], fault: Fault) -> list[Patch]:
    """The patches on torch's public readers and resets of peaks.

    `max_memory_allocated` and the others go through the two of their module, which names them globally.

    Args:
        watched: Gives the peaks of the device that is measured, once there is one.
        fault: Told when something of ours failed.

    Returns:
        One for each name under which a reader or a reset is found.
    """
    made = []
    for module in (torch.cuda.memory, torch.cuda):
        made.append(Patch(module, "memory_stats_as_nested_dict", functools.partial(_reader, watched, fault, "add_to")))
        made.append(Patch(module, "reset_peak_memory_stats", functools.partial(_resetter, watched, fault)))
    accelerator: Any = getattr(torch, "accelerator", None)
    for module in (getattr(accelerator, "memory", None), accelerator):
        if module is not None and hasattr(module, "reset_peak_memory_stats"):
            made.append(Patch(module, "memory_stats", functools.partial(_reader, watched, fault, "add_to_flat")))
            made.append(Patch(module, "reset_peak_memory_stats", functools.partial(_resetter, watched, fault)))
    return made


def _reader(watched: Callable[[], PeakMemory | None], fault: Fault, add: str, original: Any) -> Any:
    @functools.wraps(original)
    def read(*args: Any, **kwargs: Any) -> Any:
        stats = original(*args, **kwargs)
        memory = watched()
        if memory is not None:
            try:
                if stats and _device_index(*args, **kwargs) == memory.index:
                    getattr(memory, add)(stats)
            except Exception as error:
                fault("memory", error)
        return stats

    return read


def _resetter(watched: Callable[[], PeakMemory | None], fault: Fault, original: Any) -> Any:
    @functools.wraps(original)
    def reset(*args: Any, **kwargs: Any) -> Any:
        memory = watched()
        if memory is not None:
            try:
                if _device_index(*args, **kwargs) == memory.index:
                    memory.user_resets()
            except Exception as error:
                fault("memory", error)
        return original(*args, **kwargs)

    return reset


def _device_index(device: Any = None, device_index: Any = None) -> int:
    chosen = device if device_index is None else device_index
    if chosen is not None and not isinstance(chosen, int):
        chosen = torch.device(chosen).index
    return torch.cuda.current_device() if chosen is None else int(chosen)
