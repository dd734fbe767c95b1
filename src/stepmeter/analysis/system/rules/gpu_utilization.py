"""LOW_GPU_UTILIZATION, MODERATE_GPU_UTILIZATION: the GPUs of a node were idle for a good part of the time.

*Fires*, as information, when the mean utilization of a node's GPUs is below 30 % (low), or 30 % to 70 % (moderate).
Utilization counts the time in which any kernel ran, not how much of the device it filled.
*Why*: time goes by elsewhere: input, the host, other ranks, or kernels too short to keep a device busy.
*Next*: the findings on step time say where.

Source: the thresholds of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_share

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts

LOW_BELOW = 0.30
MODERATE_UP_TO = 0.70
METRIC = "gpu_utilization_share"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the node whose GPUs idle most."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(MODERATE_UP_TO, worst[1]):
        return None
    node, share = worst
    word = "MODERATE" if reaches(share, LOW_BELOW) else "LOW"
    return Issue(
        kind=f"{word}_GPU_UTILIZATION",
        status=f"{word} GPU UTILIZATION",
        severity="info",
        summary=f"The GPUs of node {node} ran kernels for {format_share(share)} of the time.",
        action="See the findings on step time for where the rest goes.",
        metric=METRIC,
        score=1.0 - share,
        share=share,
        evidence={"node_rank": node, METRIC: share},
    )


RULE = Rule(
    ("LOW_GPU_UTILIZATION", "MODERATE_GPU_UTILIZATION"),
    check,
    __doc__,
    {"low_below": LOW_BELOW, "moderate_up_to": MODERATE_UP_TO},
)
