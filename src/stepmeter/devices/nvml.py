"""The GPU of this process as NVML describes it; absent, with a reason, wherever NVML has no answer."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stepmeter.devices.visible import visible_uuids

_T = TypeVar("_T")
_LIBRARY = "libnvidia-ml.so.1"
_MILLIWATTS_PER_WATT = 1000


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or MIG instance.

    Attributes:
        uuid: Its UUID.
        name: Product name; None when NVML does not say.
        driver_version: Version of the driver; None when NVML does not say.
        memory_limit_bytes: Memory of the device; None when NVML does not say.
        power_limit_w: Enforced power limit in watts; None when NVML does not say.
        mig: Whether it is a MIG instance.
    """

    uuid: str
    name: str | None
    driver_version: str | None
    memory_limit_bytes: int | None
    power_limit_w: float | None
    mig: bool


@dataclass(frozen=True, slots=True)
class Lookup:
    """What a look for a device gave.

    Attributes:
        device: The device, or None.
        reason: Why there is none; None when there is one.
    """

    device: Device | None
    reason: str | None


def find_device(environ: Mapping[str, str], local_rank: int) -> Lookup:
    """Find the GPU that a rank will use before torch or CUDA is there to ask.

    Args:
        environ: The environment, for CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.
        local_rank: Rank within the node, 0 or more.

    Returns:
        The device, or the reason why it is unknown. Never raises.
    """
    found = _with_nvml(lambda nvml: _find(nvml, environ, local_rank))
    return Lookup(None, found) if isinstance(found, str) else found


def find_devices(environ: Mapping[str, str]) -> list[Device]:
    """Find all GPUs that CUDA would show to a program.

    Args:
        environ: The environment, for CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER.

    Returns:
        The devices; all of the host's where only CUDA knows which its numbers name. Empty without any. Never raises.
    """

    def find(nvml: Any) -> list[Device]:
        uuids = _uuids_in_cuda_order(nvml, environ)
        if uuids is None:
            return [_describe(nvml, uuid) for uuid in _uuids_in_cuda_order(nvml, {}, mixed=True) or []]
        return [_describe(nvml, uuid) for uuid in visible_uuids(environ.get("CUDA_VISIBLE_DEVICES"), uuids)]

    found = _with_nvml(find)
    return [] if isinstance(found, str) else found


def load_nvml() -> bool:
    """Load NVML and its binding, if this machine has a driver.

    Returns:
        Whether it has; a machine without one is told at once, and spared 30 ms of import.
    """
    try:
        ctypes.CDLL(_LIBRARY)
        importlib.import_module("pynvml")
    except (OSError, ImportError):
        return False
    return True


def _with_nvml(ask: Callable[[Any], _T]) -> _T | str:
    """What NVML answers, or why it does not."""
    try:
        ctypes.CDLL(_LIBRARY)
        import pynvml
    except OSError:
        return f"NVML: no NVIDIA driver ({_LIBRARY} not found)"
    except ImportError:
        return "nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"NVML: {error}"
    try:
        return ask(pynvml)
    except pynvml.NVMLError as error:
        return f"NVML: {error}"
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _find(nvml: Any, environ: Mapping[str, str], local_rank: int) -> Lookup:
    uuids = _uuids_in_cuda_order(nvml, environ)
    if uuids is None:
        return Lookup(None, "GPUs of several kinds and no CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA alone knows the order")
    setting = environ.get("CUDA_VISIBLE_DEVICES")
    visible = visible_uuids(setting, uuids)
    if not visible:
        return Lookup(None, f"no visible GPU (CUDA_VISIBLE_DEVICES={setting!r}, {len(uuids)} in the host)")
    if local_rank >= len(visible) and len(visible) > 1:
        return Lookup(None, f"local rank {local_rank} of {len(visible)} visible GPUs")
    return Lookup(_describe(nvml, visible[min(local_rank, len(visible) - 1)]), None)


def _uuids_in_cuda_order(nvml: Any, environ: Mapping[str, str], *, mixed: bool = False) -> list[str] | None:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    by_bus = sorted(handles, key=lambda handle: _text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    kinds = {_text(nvml.nvmlDeviceGetName(handle)) for handle in by_bus}
    indexed = not any(prefix in environ.get("CUDA_VISIBLE_DEVICES", "") for prefix in ("GPU-", "MIG-"))
    if not mixed and len(kinds) > 1 and indexed and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return None
    return [_text(nvml.nvmlDeviceGetUUID(handle)) for handle in by_bus]


def _describe(nvml: Any, uuid: str) -> Device:
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
    memory = _ask(nvml, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    power_mw = _ask(nvml, lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle))
    return Device(
        uuid=uuid,
        name=_ask(nvml, lambda: _text(nvml.nvmlDeviceGetName(handle))),
        driver_version=_ask(nvml, lambda: _text(nvml.nvmlSystemGetDriverVersion())),
        memory_limit_bytes=None if memory is None else int(memory),
        power_limit_w=None if power_mw is None else power_mw / _MILLIWATTS_PER_WATT,
        mig=uuid.startswith("MIG-"),
    )


def _ask(nvml: Any, question: Callable[[], _T]) -> _T | None:
    """One failed query never takes the others with it."""
    try:
        return question()
    except nvml.NVMLError:
        return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
