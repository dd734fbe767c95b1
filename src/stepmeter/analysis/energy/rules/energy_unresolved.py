"""ENERGY_UNRESOLVED: steps are so short that one step's energy is known within wide bounds only.

*Fires*, as information, when the median step's bounds are wider than 25 % to either side.
*Why*: the counter moves each 20 to 100 ms, and within a tick a step may have taken much or little of it.
*Next*: look at sums over many steps, which are exact; single steps can't be told apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.units import format_energy, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.energy.model import TrainingEnergy

INFO_SHARE = 0.25


def check(facts: TrainingEnergy) -> Issue | None:
    """Judge the rank whose steps are known worst."""
    known = [
        (rank.half_width_mj / rank.median_mj, rank)
        for rank in facts.ranks
        if rank.median_mj and rank.half_width_mj is not None
    ]
    if not known:
        return None
    width, rank = max(known, key=lambda pair: (pair[0], -pair[1].rank))
    if width <= INFO_SHARE:
        return None
    return Issue(
        kind="ENERGY_UNRESOLVED",
        status="ENERGY UNRESOLVED",
        severity="info",
        summary=(
            f"A step of rank {rank.rank} takes {format_energy(rank.median_mj)} within {format_share(width)} to either "
            "side: it is short beside the counter's ticks."
        ),
        action="Compare sums over many steps, which are exact, and not single steps.",
        metric="half_width_share",
        evidence={"half_width_share": width, "median_mj": rank.median_mj},
    )


RULE = Rule(("ENERGY_UNRESOLVED",), check, __doc__, {"info": INFO_SHARE})
