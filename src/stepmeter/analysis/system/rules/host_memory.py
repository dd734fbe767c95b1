"""HIGH_HOST_MEMORY: a host's memory was nearly full.

*Fires*, as a warning, when the greatest reading of used memory is 80 % of the host's memory or more.
*Why*: the kernel starts to reclaim and to swap, and in the end kills a process, often a DataLoader worker.
*Next*: see in the section on processes whether the ranks hold it; fewer workers, less prefetching, or no whole dataset
in memory free some.

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
METRIC = "ram_peak_share"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the fullest host."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], WARN_SHARE):
        return None
    node, share = worst
    return Issue(
        kind="HIGH_HOST_MEMORY",
        status="HIGH HOST MEMORY",
        severity="warn",
        summary=f"The memory of node {node} was {format_share(share)} full at its peak.",
        action="Find out who holds it: the ranks (section process), DataLoader workers, or others on the host.",
        metric=METRIC,
        score=share,
        share=share,
        evidence={"node_rank": node, "host": facts.rows[node].host, METRIC: share},
    )


RULE = Rule(("HIGH_HOST_MEMORY",), check, __doc__, {"warn": WARN_SHARE})
