"""VERY_HIGH_PROCESS_GPU_MEMORY, HIGH_PROCESS_GPU_MEMORY: a rank's allocator held nearly all of its GPU's memory.

*Fires* when the allocator's greatest reserve is 80 % (warning) or 90 % (critical) of the device's memory.
*Why*: the next longer sequence or larger batch may not fit.
*Next*: a smaller batch, activation checkpointing or sharding; where the reserve is far above what tensors hold, see
GPU_MEMORY_RESERVED_OVERHANG.

Source: the thresholds of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_share

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts

WARN_SHARE = 0.80
CRIT_SHARE = 0.90
METRIC = "gpu_memory_reserved_share"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the rank that holds most."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], WARN_SHARE):
        return None
    rank, share = worst
    is_critical = reaches(share, CRIT_SHARE)
    word = "VERY_HIGH" if is_critical else "HIGH"
    return Issue(
        kind=f"{word}_PROCESS_GPU_MEMORY",
        status=f"{word.replace('_', ' ')} PROCESS GPU MEMORY",
        severity="crit" if is_critical else "warn",
        summary=f"The allocator of rank {rank} held {format_share(share)} of its GPU's memory at its peak.",
        action="Use a smaller batch, activation checkpointing or sharding before the next longer sequence fails.",
        metric=METRIC,
        score=share,
        share=share,
        ranks=(rank,),
        evidence={"rank": rank, METRIC: share},
    )


RULE = Rule(
    ("VERY_HIGH_PROCESS_GPU_MEMORY", "HIGH_PROCESS_GPU_MEMORY"),
    check,
    __doc__,
    {"warn": WARN_SHARE, "crit": CRIT_SHARE},
)
