"""CPU and memory of the host and of this process, by psutil."""

from __future__ import annotations

from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics


class ProcessSampler:
    """Reads what this process uses."""

    def __init__(self) -> None:
        import psutil

        self._process = psutil.Process()

    def read(self, at_ns: int) -> list[Reading]:
        """Read once.

        Args:
            at_ns: Now, monotonic.

        Returns:
            CPU time in s since the process began, user and system together, and resident memory in bytes.
        """
        with self._process.oneshot():
            times = self._process.cpu_times()
            resident_bytes = self._process.memory_info().rss
        return [
            Reading(metrics.PROCESS_CPU_TIME.name, times.user + times.system, at_ns),
            Reading(metrics.PROCESS_MEMORY_USAGE.name, resident_bytes, at_ns),
        ]


class HostSampler:
    """Reads what the whole host uses; for one process a host."""

    def __init__(self) -> None:
        import psutil

        self._psutil = psutil
        self._began = False

    def read(self, at_ns: int) -> list[Reading]:
        """Read once.

        Args:
            at_ns: Now, monotonic.

        Returns:
            CPU utilization since the last call as a share of all cores (absent at the first, which has none to look
            back on), their number, memory used and limit in bytes.
        """
        memory = self._psutil.virtual_memory()
        busy_share = self._psutil.cpu_percent() / 100
        began, self._began = self._began, True
        return [
            *([Reading(metrics.SYSTEM_CPU_UTILIZATION.name, busy_share, at_ns)] if began else []),
            Reading(metrics.SYSTEM_CPU_LOGICAL_COUNT.name, self._psutil.cpu_count() or 1, at_ns),
            Reading(metrics.SYSTEM_MEMORY_USAGE.name, memory.total - memory.available, at_ns),
            Reading(metrics.SYSTEM_MEMORY_LIMIT.name, memory.total, at_ns),
        ]
