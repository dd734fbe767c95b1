"""Facts of each node: its CPUs and memory, and its GPUs, the worst of which stands for a limit."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from stepmeter.analysis.readings import duration_s
from stepmeter.analysis.section import SectionFacts, SectionMetric, SectionRow

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepmeter.analysis.readings import GpuReadings, HostReadings, Readings

METRICS = (
    SectionMetric("cpu_share"),
    SectionMetric("ram_bytes"),
    SectionMetric("ram_share"),
    SectionMetric("ram_peak_share"),
    SectionMetric("gpu_utilization_share", worst="min"),
    SectionMetric("gpu_memory_bytes"),
    SectionMetric("gpu_memory_peak_share"),
    SectionMetric("gpu_memory_headroom_bytes", worst="min"),
    SectionMetric("gpu_temperature_peak_c"),
    SectionMetric("gpu_power_w"),
    SectionMetric("gpu_power_share"),
)
"""Means over the readings, but for those named peak and the headroom, which is what the peak left free."""


def system_facts(readings: Readings, *, has_gpu: bool) -> SectionFacts:
    """Sum each node up.

    Args:
        readings: What was read while steps ran.
        has_gpu: Whether any rank worked on a GPU.

    Returns:
        One row a node, numbered by its rank where known, else in the order of hosts.
    """
    hosts = {item.host: item for item in readings.hosts}
    names = [*hosts, *sorted({item.host for item in readings.gpus} - hosts.keys(), key=str)]
    rows, next_free = {}, 0
    for name in names:
        host, gpus = hosts.get(name), [item for item in readings.gpus if item.host == name]
        known = None if host is None else host.node_rank
        index = next_free if known is None or known in rows else known
        rows[index] = _row(name, host, gpus)
        next_free = max(rows) + 1
    return SectionFacts(
        name="system",
        index_by="node_rank",
        metrics=METRICS,
        rows=dict(sorted(rows.items())),
        samples=sum(host.samples for host in readings.hosts) + sum(gpu.samples for gpu in readings.gpus),
        has_gpu=has_gpu or bool(readings.gpus),
        duration_s=duration_s([*readings.hosts, *readings.gpus]),
    )


def _row(name: str | None, host: HostReadings | None, gpus: Sequence[GpuReadings]) -> SectionRow:
    of_gpus = {
        "gpu_utilization_share": _mean(gpus, lambda gpu: gpu.utilization_share),
        "gpu_memory_bytes": _mean(gpus, lambda gpu: gpu.memory_bytes),
        "gpu_power_w": _mean(gpus, lambda gpu: gpu.power_w),
    }
    worst = {
        "gpu_memory_peak_share": _worst(gpus, lambda gpu: _share(gpu.memory_peak_bytes, gpu.memory_limit_bytes)),
        "gpu_temperature_peak_c": _worst(gpus, lambda gpu: gpu.temperature_peak_c),
        "gpu_power_share": _worst(gpus, lambda gpu: _share(gpu.power_w, gpu.power_limit_w)),
        "gpu_memory_headroom_bytes": _worst(gpus, lambda gpu: _negated(_headroom_bytes(gpu))),
    }
    found = {**_of_host(host), **of_gpus, **{metric: item and item[0] for metric, item in worst.items()}}
    found["gpu_memory_headroom_bytes"] = _negated(found["gpu_memory_headroom_bytes"])
    return SectionRow(
        metrics={metric: float(value) for metric, value in found.items() if value is not None},
        host=name,
        node_rank=None if host is None else host.node_rank,
        devices={metric: item[1] for metric, item in worst.items() if item is not None},
    )


def _of_host(host: HostReadings | None) -> dict[str, float | None]:
    if host is None:
        return {}
    return {
        "cpu_share": host.cpu_share,
        "ram_bytes": host.ram_bytes,
        "ram_share": _share(host.ram_bytes, host.ram_limit_bytes),
        "ram_peak_share": _share(host.ram_peak_bytes, host.ram_limit_bytes),
    }


def _mean(gpus: Sequence[GpuReadings], of: Callable[[GpuReadings], float | None]) -> float | None:
    values = [value for gpu in gpus if (value := of(gpu)) is not None]
    return statistics.fmean(values) if values else None


def _worst(gpus: Sequence[GpuReadings], of: Callable[[GpuReadings], float | None]) -> tuple[float, str] | None:
    values = [(value, gpu.hw_id) for gpu in gpus if (value := of(gpu)) is not None]
    return max(values, default=None)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _headroom_bytes(gpu: GpuReadings) -> float | None:
    if gpu.memory_peak_bytes is None or gpu.memory_limit_bytes is None:
        return None
    return gpu.memory_limit_bytes - gpu.memory_peak_bytes


def _negated(value: float | None) -> float | None:
    return None if value is None else -value
