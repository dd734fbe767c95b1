"""What steps cost, in the shape that all sections of a summary have: one row a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.section import SectionFacts, SectionMetric, SectionRow
from stepmeter.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepmeter.analysis.energy.model import RankEnergy, TrainingEnergy
    from stepmeter.analysis.step_time.source import RankIdentity

METRICS = (
    SectionMetric("step_energy_mj"),
    SectionMetric("step_energy_bound_mj"),
    SectionMetric("sample_energy_mj"),
    SectionMetric("token_energy_mj"),
    SectionMetric("total_energy_mj"),
    SectionMetric("step_cpu_energy_mj"),
)
"""Energies of GPUs but the last, which is of the host's CPUs and memory. A step's are medians over settled steps; a
sample's and a token's are the total over their number."""


def section_facts(energy: TrainingEnergy, identities: Mapping[int, RankIdentity]) -> SectionFacts:
    """Sum each rank up.

    Args:
        energy: What the steps cost.
        identities: Where each reporting rank ran.

    Returns:
        The facts; no rows where no step has an energy.
    """
    ranks = {rank.rank: rank for rank in energy.ranks if rank.steps}
    of_hosts = {rank.rank: rank for rank in energy.host_ranks if rank.steps}
    return SectionFacts(
        name="energy",
        index_by="global_rank",
        metrics=METRICS,
        rows={
            rank: _row(ranks.get(rank), of_hosts.get(rank), identities.get(rank))
            for rank in sorted({*ranks, *of_hosts})
        },
        samples=sum(rank.steps for rank in ranks.values() or energy.host_ranks),
        has_gpu=bool(energy.devices),
        duration_s=max(
            (device.duration_ns / NS_PER_S for device in (*energy.devices, *energy.host_devices)), default=None
        ),
    )


def _row(rank: RankEnergy | None, of_host: RankEnergy | None, identity: RankIdentity | None) -> SectionRow:
    found = {"step_cpu_energy_mj": of_host.median_mj if of_host else None, **(_of_gpu(rank) if rank else {})}
    parts = {"step_energy_mj": rank, "step_cpu_energy_mj": of_host}
    return SectionRow(
        {name: value for name, value in found.items() if value is not None},
        identity.host if identity else None,
        identity.node_rank if identity else None,
        intervals={name: one.median_interval_mj for name, one in parts.items() if one and one.median_interval_mj},
    )


def _of_gpu(rank: RankEnergy) -> dict[str, float | None]:
    return {
        "step_energy_mj": rank.median_mj,
        "step_energy_bound_mj": rank.half_width_mj,
        "sample_energy_mj": rank.total_mj / rank.samples if rank.samples else None,
        "token_energy_mj": rank.total_mj / rank.tokens if rank.tokens else None,
        "total_energy_mj": float(rank.total_mj),
    }
