"""HIGH_GPU_POWER: a GPU worked close to its power limit all along.

*Fires*, as a warning, when a device's mean power is 80 % of its enforced limit or more.
*Why*: at its limit a device lowers its clocks; there is little left to win from it.
*Next*: see whether the limit was lowered on purpose; else it is well used.

Source: the threshold of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_share

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts

WARN_SHARE = 0.80
METRIC = "gpu_power_share"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the GPU closest to its limit."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], WARN_SHARE):
        return None
    node, share = worst
    device = facts.rows[node].devices[METRIC]
    return Issue(
        kind="HIGH_GPU_POWER",
        status="HIGH GPU POWER",
        severity="warn",
        summary=f"GPU {device} of node {node} took {format_share(share)} of its power limit on average.",
        action="See whether its limit was lowered on purpose; a device at its limit lowers its clocks.",
        metric=METRIC,
        score=share,
        share=share,
        evidence={"node_rank": node, "hw_id": device, METRIC: share},
    )


RULE = Rule(("HIGH_GPU_POWER",), check, __doc__, {"warn": WARN_SHARE})
