"""One GPU's energy and power by NVML, query by query: what fails is named and never takes another with it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")

RUN_ID_MARK = b"STEPMETER_RUN_ID="

_HELD_DOWN = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
"""Clock limits by software power cap, hardware slowdown, software and hardware heat, and power brake.

Source: nvml.h, nvmlClocksEventReason*."""


class Board:
    """A device as NVML knows it.

    Args:
        uuid: UUID of a GPU or a MIG instance; the latter has neither energy nor power, so that its GPU is read.
    """

    def __init__(self, uuid: str) -> None:
        import pynvml

        self._nvml = pynvml
        self._uuid = uuid
        self._handle: Any = None
        self.uuid = uuid
        self.faults: Counter[str] = Counter()
        self.instant_power = True

    def open(self) -> bool:
        """Find the device anew; after a driver reload or a lost GPU old handles are dead.

        Returns:
            Whether it is there.
        """
        self.close()
        return self._ask(self._open) is not None

    def _open(self) -> bool:
        nvml = self._nvml
        nvml.nvmlInit()
        try:
            handle = nvml.nvmlDeviceGetHandleByUUID(self._uuid.encode())
            if self._uuid.startswith("MIG-"):
                handle = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            uuid = nvml.nvmlDeviceGetUUID(handle)
        except BaseException:
            with contextlib.suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
            raise
        self._handle, self.uuid = handle, uuid.decode() if isinstance(uuid, bytes) else uuid
        return True

    def close(self) -> None:
        """Let go of the device; harmless a second time."""
        if self._handle is not None:
            self._handle = None
            with contextlib.suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()

    def read_counter(self) -> int:
        """Energy since the driver was loaded, in mJ.

        Raises:
            NVMLError: It can't be read; the caller counts it by `count`.
        """
        energy_mj: int = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)
        return energy_mj

    def has_counter(self) -> bool | None:
        """Whether the board has an energy counter; None when it can't say now."""
        try:
            self.read_counter()
        except self._nvml.NVMLError as error:
            self.count(error)
            return False if self._is_unsupported(error) else None
        return True

    def power_w(self) -> dict[str, float]:
        """Power now, in W, by the window that it is a mean over: `instant`, `average`, or `` as documented."""
        fields = {"instant": self._nvml.NVML_FI_DEV_POWER_INSTANT, "average": self._nvml.NVML_FI_DEV_POWER_AVERAGE}
        found: dict[str, float] = {}
        if self.instant_power:
            answer = self._ask(lambda: self._nvml.nvmlDeviceGetFieldValues(self._handle, list(fields.values())))
            for kind, value in zip(fields, answer or (), strict=False):
                if value.nvmlReturn == self._nvml.NVML_SUCCESS:
                    found[kind] = value.value.uiVal / 1000
                elif value.nvmlReturn != self._nvml.NVML_ERROR_NOT_SUPPORTED:
                    self.count(self._nvml.NVMLError(value.nvmlReturn))
            self.instant_power = "instant" in found or answer is None
        if "instant" not in found:
            usage_mw = self._ask(lambda: self._nvml.nvmlDeviceGetPowerUsage(self._handle))
            if usage_mw is not None:
                found[""] = usage_mw / 1000
        return found

    def limit_w(self) -> float | None:
        """Enforced power limit in W; None when not known."""
        limit_mw = self._ask(lambda: self._nvml.nvmlDeviceGetEnforcedPowerLimit(self._handle))
        return None if limit_mw is None else limit_mw / 1000

    def is_throttled(self) -> bool | None:
        """Whether power or heat holds the clocks down; None when not known."""
        reasons = self._ask(lambda: self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))
        return None if reasons is None else bool(reasons & _HELD_DOWN)

    def other_processes(self, run_id: str) -> int | None:
        """Processes on the device that belong to no process of the run.

        Args:
            run_id: The run, which its processes carry in their environment.

        Returns:
            Their number; None when NVML does not say, or names processes that this process can't see.
        """
        found = self._ask(lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle))
        if found is None:
            return None
        ours = [_is_of_run(process.pid, run_id) for process in found]
        return None if ours and None in ours else sum(not own for own in ours)

    def count(self, error: BaseException) -> None:
        """Count a failure by the name of its kind, which is all that is finite about it."""
        self.faults[type(error).__name__.removeprefix("NVMLError_")] += 1

    def _is_unsupported(self, error: BaseException) -> bool:
        known = (self._nvml.NVML_ERROR_NOT_SUPPORTED, self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return getattr(error, "value", None) in known

    def _ask(self, question: Callable[[], _T]) -> _T | None:
        try:
            return question()
        except self._nvml.NVMLError as error:
            self.count(error)
            return None


def _is_of_run(pid: int, run_id: str) -> bool | None:
    """Whether a process carries the run's id; None when it is of another user or another namespace."""
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    return RUN_ID_MARK + run_id.encode() in environ.split(b"\0")
