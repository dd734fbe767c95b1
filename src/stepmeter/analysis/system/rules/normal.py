"""NORMAL, NO_DATA: no rule found anything about the hosts and GPUs.

*NORMAL*: there are readings, and none is beyond its threshold. *NO_DATA*: there are no readings.
*Next*: without readings, see whether `stepmeter doctor` can read this host and its GPUs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.units import format_share

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts

WORDS = {
    "cpu_share": "CPUs busy {} of the time",
    "ram_peak_share": "memory {} full at its peak",
    "gpu_utilization_share": "GPUs busy {} of the time",
    "gpu_memory_peak_share": "GPU memory {} full at its peak",
}


def issue(facts: SectionFacts) -> Issue:
    """Make the finding, which says what was read."""
    if not facts.rows:
        return Issue(
            kind="NO_DATA",
            status="NO DATA",
            severity="info",
            summary="No reading of a host or a GPU was recorded while steps ran.",
            action="Run for some seconds or longer; `stepmeter doctor` says what can be read on this host.",
        )
    worst = {metric: found[1] for metric in WORDS if (found := facts.worst(metric)) is not None}
    read = ", ".join(WORDS[metric].format(format_share(value)) for metric, value in worst.items())
    return Issue(
        kind="NORMAL",
        status="NORMAL",
        severity="info",
        summary=f"Nothing stands out{f': {read}' if read else ''}.",
        action="Nothing to do.",
        evidence=worst,
    )


RULE: Rule[SectionFacts] = Rule(("NORMAL", "NO_DATA"), lambda _: None, __doc__)
