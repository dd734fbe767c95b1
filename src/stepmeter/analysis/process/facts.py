"""Facts of each rank's process: CPUs, resident memory, and what its allocator held on its GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.readings import duration_s
from stepmeter.analysis.section import SectionFacts, SectionMetric, SectionRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepmeter.analysis.readings import HostReadings, Readings
    from stepmeter.analysis.section import SectionRow as MemoryRow
    from stepmeter.analysis.step_time.source import RankIdentity

METRICS = (
    SectionMetric("cpu_cores"),
    SectionMetric("cpu_share"),
    SectionMetric("rss_bytes"),
    SectionMetric("rss_peak_share"),
    SectionMetric("gpu_memory_allocated_bytes"),
    SectionMetric("gpu_memory_reserved_bytes"),
    SectionMetric("gpu_memory_reserved_share"),
    SectionMetric("gpu_memory_headroom_bytes", worst="min"),
)
"""CPUs and resident memory are means, `rss_peak_share` and the GPU metrics are of the peaks."""


def process_facts(
    readings: Readings, identities: Mapping[int, RankIdentity], step_memory: SectionFacts
) -> SectionFacts:
    """Sum each process up.

    Args:
        readings: What was read while steps ran.
        identities: Where each reporting rank ran.
        step_memory: The facts of the steps' memory, whose peaks are those of the process's allocator.

    Returns:
        One row a rank that has readings or memory peaks.
    """
    hosts = {item.host: item for item in readings.hosts}
    processes = {item.rank: item for item in readings.processes}
    rows = {}
    for rank in sorted(processes.keys() | step_memory.rows.keys()):
        process = processes.get(rank)
        identity = identities.get(rank)
        host = identity.host if identity else process and process.host
        found = _of_gpu(step_memory.rows.get(rank))
        if process is not None:
            found |= {
                "cpu_cores": process.cpu_cores,
                "cpu_share": _share(process.cpu_cores, _cores(hosts.get(host))),
                "rss_bytes": process.rss_bytes,
                "rss_peak_share": _share(process.rss_peak_bytes, _ram_bytes(hosts.get(host))),
            }
        metrics = {metric: float(value) for metric, value in found.items() if value is not None}
        rows[rank] = SectionRow(metrics, host, identity.node_rank if identity else None)
    return SectionFacts(
        name="process",
        index_by="global_rank",
        metrics=METRICS,
        rows=rows,
        samples=sum(item.samples for item in readings.processes),
        has_gpu=step_memory.has_gpu,
        duration_s=duration_s(readings.processes),
    )


def _of_gpu(memory: MemoryRow | None) -> dict[str, float | None]:
    if memory is None:
        return {}
    reserved_bytes = memory.metrics.get("peak_reserved_bytes")
    share = memory.metrics.get("peak_reserved_share")
    headroom_bytes = None
    if reserved_bytes is not None and share:
        headroom_bytes = reserved_bytes / share - reserved_bytes
    return {
        "gpu_memory_allocated_bytes": memory.metrics.get("peak_allocated_bytes"),
        "gpu_memory_reserved_bytes": reserved_bytes,
        "gpu_memory_reserved_share": share,
        "gpu_memory_headroom_bytes": headroom_bytes,
    }


def _cores(host: HostReadings | None) -> float | None:
    return host.cpu_cores if host else None


def _ram_bytes(host: HostReadings | None) -> float | None:
    return host.ram_limit_bytes if host else None


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
