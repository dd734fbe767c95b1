"""BALANCED, NO_DATA: no rule found anything about the memory of steps.

*BALANCED*: there are peaks, and none is beyond its threshold. Where the device's memory is not known, pressure
could not be judged, and the finding says so. *NO_DATA*: steps ran on a GPU, and none measured its memory.
*Next*: without peaks, see that STEPMETER_MEMORY is not 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.units import format_bytes, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.memory.facts import StepMemoryFacts


def issue(facts: StepMemoryFacts) -> Issue:
    """Make the finding, which says what the peaks are."""
    worst = facts.worst("peak_reserved_bytes") or facts.worst("peak_allocated_bytes")
    if worst is None:
        return Issue(
            kind="NO_DATA",
            status="NO DATA",
            severity="info",
            summary="No step measured its peak memory.",
            action="Let a step run on a GPU, with STEPMETER_MEMORY unset or 1.",
        )
    share = facts.worst("peak_reserved_share") or facts.worst("peak_allocated_share")
    known = f"{format_share(share[1])} of its device" if share else "of a device whose memory is not known"
    return Issue(
        kind="BALANCED",
        status="BALANCED",
        severity="info",
        summary=f"The steps' memory stands out nowhere: at most {format_bytes(worst[1])}, {known}.",
        action="Nothing to do.",
        ranks=(worst[0],) if len(facts.rows) > 1 else (),
        evidence={"worst_rank": worst[0], "peak_bytes": worst[1], "pressure": share and share[1]},
    )


RULE: Rule[StepMemoryFacts] = Rule(("BALANCED", "NO_DATA"), lambda _: None, __doc__)
