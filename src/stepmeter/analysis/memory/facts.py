"""Facts of the steps' peak memory: the peaks of each rank, and their course over the steps that all ranks have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stepmeter.analysis.queries import query
from stepmeter.analysis.section import SectionFacts, SectionMetric, SectionRow

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow
    from stepmeter.store.snapshot import Snapshot

KINDS = ("allocated", "reserved")
METRICS = (
    SectionMetric("peak_allocated_bytes"),
    SectionMetric("peak_reserved_bytes"),
    SectionMetric("peak_allocated_share"),
    SectionMetric("peak_reserved_share"),
)
"""The greatest peak of the window's steps; shares are of the device's memory."""

Series = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MemorySeries:
    """A peak on each step that all ranks have.

    Attributes:
        worst_bytes: Of the rank with the greatest, shape (steps,).
        median_bytes: Median over ranks, shape (steps,).
    """

    worst_bytes: Series
    median_bytes: Series


@dataclass(frozen=True, slots=True)
class StepMemoryFacts(SectionFacts):
    """The facts of the section, and their course.

    Attributes:
        series: Course of each metric of `peak_<kind>_bytes` that was measured.
    """

    series: Mapping[str, MemorySeries] = field(default_factory=dict)


def load(source: Snapshot, window: StepTimeWindow, attempt: int | None) -> StepMemoryFacts:
    """Read the peak memory of the steps that step time was judged by.

    Args:
        source: One snapshot of the store.
        window: The window of step time.
        attempt: The attempt that it is of; None before the first step.

    Returns:
        The facts; without rows where no step measured its memory, as on CPUs.
    """
    if not window.steps:
        return memory_facts({}, {}, window)
    first, last = window.steps[0], window.steps[-1]
    found = source.tail(first).columns(query("step_memory"), (attempt, first, last))
    limits = dict(source.rows(query("gpu_limits")))
    return memory_facts(found, limits, window)


def memory_facts(
    found: Mapping[str, npt.NDArray[Any]], limits_bytes: Mapping[str, float], window: StepTimeWindow
) -> StepMemoryFacts:
    """Sum each rank up.

    Args:
        found: Columns `rank`, `step` and `peak_<kind>_bytes`, masked where null.
        limits_bytes: Memory of each device by its UUID.
        window: The window of step time, for where ranks ran.

    Returns:
        The facts.
    """
    has_gpu = any(identity.hw_id for identity in window.identities.values())
    empty = StepMemoryFacts("step_memory", "global_rank", METRICS, has_gpu=has_gpu, n_steps=len(window.steps))
    if not len(found.get("rank", ())):
        return empty
    by_kind = {kind: _by_rank(found, f"peak_{kind}_bytes") for kind in KINDS}
    ranks = sorted({rank for series in by_kind.values() for rank in series})
    return StepMemoryFacts(
        name="step_memory",
        index_by="global_rank",
        metrics=METRICS,
        rows={rank: _row(rank, by_kind, limits_bytes, window) for rank in ranks},
        samples=len(found["rank"]),
        has_gpu=True,
        duration_s=window.coverage.duration_s,
        steps=(int(found["step"].min()), int(found["step"].max())),
        n_steps=len(np.unique(found["step"])),
        series={f"peak_{kind}_bytes": _course(series) for kind, series in by_kind.items() if series},
    )


def _by_rank(found: Mapping[str, npt.NDArray[Any]], name: str) -> dict[int, tuple[npt.NDArray[np.int64], Series]]:
    """Steps and values of each rank that measured a metric."""
    measured = ~np.ma.getmaskarray(found[name])
    ranks, steps = found["rank"][measured], found["step"][measured]
    values = np.asarray(found[name][measured], dtype=np.float64)
    return {rank: (steps[ranks == rank], values[ranks == rank]) for rank in np.unique(ranks).tolist()}


def _row(
    rank: int,
    by_kind: Mapping[str, Mapping[int, tuple[npt.NDArray[np.int64], Series]]],
    limits_bytes: Mapping[str, float],
    window: StepTimeWindow,
) -> SectionRow:
    identity = window.identities.get(rank)
    limit_bytes = limits_bytes.get(identity.hw_id) if identity and identity.hw_id else None
    metrics = {}
    for kind, series in by_kind.items():
        if rank in series:
            peak_bytes = float(series[rank][1].max())
            metrics[f"peak_{kind}_bytes"] = peak_bytes
            if limit_bytes:
                metrics[f"peak_{kind}_share"] = peak_bytes / limit_bytes
    return SectionRow(metrics, identity.host if identity else None, identity.node_rank if identity else None)


def _course(series: Mapping[int, tuple[npt.NDArray[np.int64], Series]]) -> MemorySeries:
    common = reduce(np.intersect1d, [steps for steps, _ in series.values()])
    table = np.array([values[np.searchsorted(steps, common)] for steps, values in series.values()])
    return MemorySeries(worst_bytes=table.max(axis=0), median_bytes=np.median(table, axis=0))
