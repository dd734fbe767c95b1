"""HIGH_PROCESS_CPU: a rank's process kept most of its host's CPUs busy.

*Fires*, as a warning, when a rank's mean CPU time per second is 80 % of the host's CPUs or more.
*Why*: its own threads compete with one another, with DataLoader workers and with other ranks.
*Next*: set OMP_NUM_THREADS and torch.set_num_threads() to the CPUs divided by the ranks of the host.

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
    """Judge the busiest process."""
    worst = facts.worst(METRIC)
    if worst is None or not reaches(worst[1], WARN_SHARE):
        return None
    rank, share = worst
    return Issue(
        kind="HIGH_PROCESS_CPU",
        status="HIGH PROCESS CPU",
        severity="warn",
        summary=f"The process of rank {rank} kept {format_share(share)} of its host's CPUs busy.",
        action="Set OMP_NUM_THREADS and torch.set_num_threads() to the host's CPUs divided by its ranks.",
        metric=METRIC,
        score=share,
        share=share,
        ranks=(rank,),
        evidence={"rank": rank, METRIC: share, "cpu_cores": facts.rows[rank].metrics["cpu_cores"]},
    )


RULE = Rule(("HIGH_PROCESS_CPU",), check, __doc__, {"warn": WARN_SHARE})
