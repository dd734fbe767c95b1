"""VERY_HIGH_GPU_MEMORY, HIGH_GPU_MEMORY: a GPU's memory was nearly full, whoever filled it.

*Fires* when the greatest reading of a device's used memory is 80 % (warning) or 90 % (critical) of its size.
*Why*: the next longer sequence or larger batch may not fit, and the allocator starts to free and search.
*Next*: see in step memory whether it is tensors or the allocator's reserve; a smaller batch, activation
checkpointing or sharding frees some.

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
METRIC = "gpu_memory_peak_share"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the fullest GPU."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], WARN_SHARE):
        return None
    node, share = worst
    device = facts.rows[node].devices[METRIC]
    is_critical = reaches(share, CRIT_SHARE)
    return Issue(
        kind="VERY_HIGH_GPU_MEMORY" if is_critical else "HIGH_GPU_MEMORY",
        status="VERY HIGH GPU MEMORY" if is_critical else "HIGH GPU MEMORY",
        severity="crit" if is_critical else "warn",
        summary=f"GPU {device} of node {node} was {format_share(share)} full at its peak.",
        action=(
            "See in step memory whether tensors or the allocator's reserve fill it; a smaller batch, activation "
            "checkpointing or sharding makes room."
        ),
        metric=METRIC,
        score=share,
        share=share,
        evidence={"node_rank": node, "hw_id": device, METRIC: share},
    )


RULE = Rule(("VERY_HIGH_GPU_MEMORY", "HIGH_GPU_MEMORY"), check, __doc__, {"warn": WARN_SHARE, "crit": CRIT_SHARE})
