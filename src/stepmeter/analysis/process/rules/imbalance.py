"""RANK_GPU_MEMORY_IMBALANCE: ranks hold very different amounts of GPU memory.

*Fires* when (largest - smallest) / largest reserve over ranks is 20 % with a rank at 30 % of its device or more
(warning), or 30 % with a rank at 50 % or more (critical).
*Why*: the fullest rank limits the batch of all.
*Next*: compare what ranks hold: uneven stages or shards, longer sequences, evaluation or logging on rank 0.

Source: the thresholds of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_bytes, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts

WARN_SPREAD, WARN_PRESSURE = 0.20, 0.30
CRIT_SPREAD, CRIT_PRESSURE = 0.30, 0.50
METRIC = "gpu_memory_reserved_bytes"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the spread over ranks."""
    reserved, worst = facts.values(METRIC), facts.worst("gpu_memory_reserved_share")
    if len(reserved) < 2 or worst is None or max(reserved.values()) <= 0:
        return None
    fullest = max(reserved, key=lambda rank: (reserved[rank], -rank))
    emptiest = min(reserved, key=lambda rank: (reserved[rank], rank))
    spread, pressure = (reserved[fullest] - reserved[emptiest]) / reserved[fullest], worst[1]
    is_critical = reaches(spread, CRIT_SPREAD) and reaches(pressure, CRIT_PRESSURE)
    if not is_critical and not (reaches(spread, WARN_SPREAD) and reaches(pressure, WARN_PRESSURE)):
        return None
    return Issue(
        kind="RANK_GPU_MEMORY_IMBALANCE",
        status="RANK GPU MEMORY IMBALANCE",
        severity="crit" if is_critical else "warn",
        summary=(
            f"Rank {fullest} reserved {format_bytes(reserved[fullest])}, rank {emptiest} "
            f"{format_bytes(reserved[emptiest])}: {format_share(spread)} less."
        ),
        action=f"Compare what rank {fullest} holds with the others: stages, shards, sequence lengths, work of rank 0.",
        metric=METRIC,
        score=spread,
        skew=spread,
        ranks=(fullest,),
        evidence={"fullest_rank": fullest, "emptiest_rank": emptiest, "spread": spread, "pressure": pressure},
    )


RULE = Rule(
    ("RANK_GPU_MEMORY_IMBALANCE",),
    check,
    __doc__,
    {
        "warn_spread": WARN_SPREAD,
        "warn_pressure": WARN_PRESSURE,
        "crit_spread": CRIT_SPREAD,
        "crit_pressure": CRIT_PRESSURE,
    },
)
