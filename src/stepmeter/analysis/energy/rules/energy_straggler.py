"""ENERGY_STRAGGLER: one rank's steps take more energy than the others' though they take as long.

*Fires*, as a warning, when a rank's median step takes 15 % more energy than the median over ranks, its step time is
within 5 % of theirs, and no bound would explain it; of three ranks or more on devices of their own.
*Why*: a device that draws more for the same work runs hotter or at a higher voltage, or works on more than it should.
*Next*: compare its clocks, temperature and batch with another rank's; boards differ by up to 5 % by their sensors.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_energy, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.energy.model import TrainingEnergy

WARN_SKEW = 0.15
LIKE_TIME_SHARE = 0.05
LEAST_RANKS = 3


def check(facts: TrainingEnergy) -> Issue | None:
    """Judge the rank whose steps take the most."""
    shared = {device.hw_id for device in facts.devices if device.scope != "gpu"}
    ranks = {rank.rank: rank for rank in facts.ranks if rank.median_mj is not None and rank.hw_id not in shared}
    if len(ranks) < LEAST_RANKS:
        return None
    medians = {number: rank.median_mj or 0.0 for number, rank in ranks.items()}
    typical_mj = statistics.median(medians.values())
    typical_ns = statistics.median(rank.median_ns for rank in ranks.values())
    worst = max(medians, key=lambda number: (medians[number], -number))
    skew = medians[worst] / typical_mj - 1 if typical_mj else 0.0
    alike = abs(ranks[worst].median_ns - typical_ns) <= LIKE_TIME_SHARE * typical_ns
    resolved = medians[worst] - typical_mj > (ranks[worst].half_width_mj or 0.0)
    if not (reaches(skew, WARN_SKEW) and alike and resolved):
        return None
    return Issue(
        kind="ENERGY_STRAGGLER",
        status="ENERGY STRAGGLER",
        severity="warn",
        summary=(
            f"Rank {worst} takes {format_energy(medians[worst])} a step, {format_share(skew)} more than the median "
            "rank, in the same time."
        ),
        action=f"Compare clocks, temperature and batch of {ranks[worst].hw_id} with another device's.",
        metric="mj_per_step",
        score=skew,
        skew=skew,
        ranks=(worst,),
        evidence={"median_mj": medians[worst], "median_of_ranks_mj": typical_mj, "hw_id": ranks[worst].hw_id},
    )


RULE = Rule(("ENERGY_STRAGGLER",), check, __doc__, {"warn": WARN_SKEW})
