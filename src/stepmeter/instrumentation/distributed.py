"""Who this process is, as far as torch knows once it is up: rank, world, strategy, device."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

import torch

from stepmeter.capture.identity import Identity
from stepmeter.capture.step import Recorder

_STRATEGIES: Final = {
    "DistributedDataParallel": "ddp",
    "FullyShardedDataParallel": "fsdp",
    "FSDPModule": "fsdp",  # `fully_shard` makes a module's class inherit from it
    "DeepSpeedEngine": "deepspeed",
}


class LateIdentity:
    """Completes a recorder's identity when there is more to know.

    Args:
        recorder: Whose identity to complete.

    Attributes:
        on_device: Told the device on which the program trains, when one is found that is not the CPU.
    """

    __slots__ = ("_device", "_recorder", "_strategy", "on_device")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._strategy: str | None = None
        self._device: torch.device | None = None
        self.on_device: Callable[[torch.device], None] = lambda _device: None

    def scanned(self, modules: Iterable[torch.nn.Module]) -> None:
        """The modules above optimized parameters were found.

        Args:
            modules: Those modules; their classes name the strategy, their parameters the device.
        """
        modules = list(modules)
        for module in modules:
            for base in type(module).__mro__:
                self._strategy = _STRATEGIES.get(base.__name__, self._strategy)
        devices = {p.device for module in modules for p in module.parameters(recurse=False) if p.device.type != "cpu"}
        new = bool(devices) and self._device not in devices
        if new:
            self._device = min(devices, key=str)
        self.refresh()
        if new and self._device is not None:
            self.on_device(self._device)

    def step_closed(self) -> None:
        """A step is about to be published; looks again at steps 1, 2, 4, 8, … and 101, 201, … only."""
        step = self._recorder.steps + 1
        if step & (step - 1) == 0 or step % 100 == 1:
            self.refresh()

    def refresh(self) -> None:
        """Ask torch.distributed and CUDA, if they are up; never brings them up."""
        known = self._recorder.identity
        rank, world_size = _rank_and_world(known)
        strategy = self._strategy or ("single" if world_size == 1 else known.strategy)
        identity = dataclasses.replace(
            known, rank=rank, world_size=world_size, strategy=strategy, hw_id=hw_id(self._device) or known.hw_id
        )
        if identity != known:
            self._recorder.identity = identity


def _rank_and_world(known: Identity) -> tuple[int, int]:
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return known.rank, known.world_size


def hw_id(device: torch.device | None) -> str | None:
    """Name a device as NVML does.

    Args:
        device: The device, or None.

    Returns:
        Its UUID; None off CUDA and where torch does not say.
    """
    if device is None or device.type != "cuda" or not torch.cuda.is_initialized():
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else None
