"""Readings of hosts, GPUs and processes while an attempt's steps ran, summed up by the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from stepmeter.analysis.queries import query

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepmeter.analysis.step_time.source import StepTimeRepositorySnapshot
    from stepmeter.store.snapshot import Snapshot

_END_OF_TIME_NS = 2**63 - 1


class HostReadings(NamedTuple):
    """One row of `sql/system_readings.sql`."""

    host: str | None
    node_rank: int | None
    samples: int
    first_ns: int
    last_ns: int
    cpu_share: float | None
    ram_bytes: float | None
    ram_peak_bytes: float | None
    ram_limit_bytes: float | None
    cpu_cores: float | None


class GpuReadings(NamedTuple):
    """One row of `sql/gpu_readings.sql`."""

    hw_id: str
    host: str | None
    samples: int
    first_ns: int
    last_ns: int
    utilization_share: float | None
    memory_bytes: float | None
    memory_peak_bytes: float | None
    memory_limit_bytes: float | None
    temperature_peak_c: float | None
    power_w: float | None
    power_limit_w: float | None


class ProcessReadings(NamedTuple):
    """One row of `sql/process_readings.sql`."""

    rank: int
    host: str | None
    samples: int
    first_ns: int
    last_ns: int
    cpu_cores: float | None
    rss_bytes: float | None
    rss_peak_bytes: float | None


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read while steps ran.

    Attributes:
        hosts: One entry a host, by rank of the node where known.
        gpus: One entry a device.
        processes: One entry a rank.
    """

    hosts: tuple[HostReadings, ...] = ()
    gpus: tuple[GpuReadings, ...] = ()
    processes: tuple[ProcessReadings, ...] = ()


def load(source: Snapshot, steps: StepTimeRepositorySnapshot) -> Readings:
    """Read an attempt's readings.

    Args:
        source: One snapshot of the store.
        steps: The steps of the attempt.

    Returns:
        The readings between the start of its first step and the end of its last; all of the attempt's where none fell
        between them, as in a run of few seconds.
    """
    progress = steps.progress.values()
    first_ns = min((item.first_start_ns for item in progress), default=0)
    last_ns = max((item.last_end_ns for item in progress), default=_END_OF_TIME_NS)
    attempt = steps.cursor.attempt or 0
    found = _between(source, attempt, first_ns, last_ns)
    return found if found.hosts or found.gpus or found.processes else _between(source, attempt, 0, _END_OF_TIME_NS)


def _between(source: Snapshot, attempt: int, first_ns: int, last_ns: int) -> Readings:
    parameters = (attempt, attempt, first_ns, last_ns)
    return Readings(
        hosts=tuple(HostReadings(*row) for row in source.rows(query("system_readings"), parameters)),
        gpus=tuple(GpuReadings(*row) for row in source.rows(query("gpu_readings"), parameters)),
        processes=tuple(ProcessReadings(*row) for row in source.rows(query("process_readings"), parameters)),
    )


def duration_s(readings: Iterable[HostReadings | GpuReadings | ProcessReadings]) -> float | None:
    """Time from the first point to the last, in s; None without any."""
    listed = list(readings)
    if not listed:
        return None
    return (max(item.last_ns for item in listed) - min(item.first_ns for item in listed)) / 1e9
