"""Utilization, memory, temperature and power of this rank's GPU, by NVML."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics
from stepmeter.conventions.attributes import HW_ID
from stepmeter.conventions.resource import HW_TYPE

_MILLIWATTS_PER_WATT = 1000


class GpuSampler:
    """Reads one device; a query that fails leaves out its own reading and no other.

    Args:
        find_uuid: Says which device is ours, by UUID, or None while that is unknown.
    """

    def __init__(self, find_uuid: Callable[[], str | None]) -> None:
        import pynvml

        self._nvml = pynvml
        self._find_uuid = find_uuid
        self._uuid: str | None = None
        self._handle: Any = None
        pynvml.nvmlInit()

    def read(self, at_ns: int) -> list[Reading]:
        """Read once.

        Args:
            at_ns: Now, monotonic.

        Returns:
            Utilization as a share, memory used and limit in bytes, temperature in degrees Celsius, power in watts;
            without those that the device does not have, and empty without a device.
        """
        if not self._find():
            return []
        attributes = ((HW_ID.key, str(self._uuid)), (HW_TYPE.key, "gpu"))
        nvml, handle = self._nvml, self._handle
        questions: list[tuple[metrics.Metric, Callable[[], float]]] = [
            (metrics.GPU_UTILIZATION, lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            (metrics.GPU_MEMORY_USAGE, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used),
            (metrics.GPU_MEMORY_LIMIT, lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total),
            (metrics.HW_TEMPERATURE, lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            (metrics.HW_POWER, lambda: nvml.nvmlDeviceGetPowerUsage(handle) / _MILLIWATTS_PER_WATT),
        ]
        answers = [(metric, self._ask(question)) for metric, question in questions]
        return [Reading(metric.name, value, at_ns, attributes) for metric, value in answers if value is not None]

    def _find(self) -> bool:
        """The device may be named better once CUDA is up than it could be at start."""
        uuid = self._find_uuid()
        if uuid is not None and uuid != self._uuid:
            self._handle = self._ask(lambda: self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode()))
            self._uuid = uuid
        return self._handle is not None

    def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except self._nvml.NVMLError:
            return None
