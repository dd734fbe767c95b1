"""HIGH_PROCESS_RSS: a rank's process alone took most of its host's memory.

*Fires*, as a warning, when the greatest resident size of a rank is 80 % of the host's memory or more.
*Why*: the kernel kills the largest process first.
*Next*: look for data that is kept: whole data sets, results of all steps, tensors on the CPU.

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
METRIC = "rss_peak_share"


def check(facts: SectionFacts) -> Issue | None:
    """Judge the largest process."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], WARN_SHARE):
        return None
    rank, share = worst
    return Issue(
        kind="HIGH_PROCESS_RSS",
        status="HIGH PROCESS RSS",
        severity="warn",
        summary=f"The process of rank {rank} took {format_share(share)} of its host's memory at its peak.",
        action="Look for data that is kept in memory: whole data sets, results of all steps, tensors on the CPU.",
        metric=METRIC,
        score=share,
        share=share,
        ranks=(rank,),
        evidence={"rank": rank, METRIC: share},
    )


RULE = Rule(("HIGH_PROCESS_RSS",), check, __doc__, {"warn": WARN_SHARE})
