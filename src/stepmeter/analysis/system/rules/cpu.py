"""HIGH_CPU: a host's CPUs were busy most of the time.

*Fires*, as a warning, when the mean utilization of all CPUs of a host is 80 % or more.
*Why*: DataLoader workers, collectives and the launch of kernels compete for them.
*Next*: move work per sample out of the training job, or use fewer threads for each worker.

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
METRIC = "cpu_share"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the busiest host."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], WARN_SHARE):
        return None
    node, share = worst
    return Issue(
        kind="HIGH_CPU",
        status="HIGH CPU",
        severity="warn",
        summary=f"The CPUs of node {node} were busy for {format_share(share)} of the time.",
        action="Do expensive work per sample beforehand, or give workers fewer threads (OMP_NUM_THREADS).",
        metric=METRIC,
        score=share,
        share=share,
        evidence={"node_rank": node, "host": facts.rows[node].host, METRIC: share},
    )


RULE = Rule(("HIGH_CPU",), check, __doc__, {"warn": WARN_SHARE})
