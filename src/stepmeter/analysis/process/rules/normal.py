"""NORMAL, NO_DATA: no rule found anything about the processes.

*NORMAL*: there are readings, and none is beyond its threshold. *NO_DATA*: there are no readings.
*Next*: without readings, see whether `stepmeter doctor` can read its own process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.units import format_bytes

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts


def issue(facts: SectionFacts) -> Issue:
    """Make the finding, which says what was read."""
    if not facts.rows:
        return Issue(
            kind="NO_DATA",
            status="NO DATA",
            severity="info",
            summary="No reading of a training process was recorded while steps ran.",
            action="Run for some seconds or longer; `stepmeter doctor` says what can be read on this host.",
        )
    cores, rss = facts.worst("cpu_cores"), facts.worst("rss_bytes")
    read = [f"{cores[1]:.1f} CPUs busy"] if cores else []
    read += [f"{format_bytes(rss[1])} resident"] if rss else []
    return Issue(
        kind="NORMAL",
        status="NORMAL",
        severity="info",
        summary="Nothing stands out" + (f" (at most {', '.join(read)})." if read else "."),
        action="Nothing to do.",
        evidence={name: item[1] for name, item in (("cpu_cores", cores), ("rss_bytes", rss)) if item},
    )


RULE: Rule[SectionFacts] = Rule(("NORMAL", "NO_DATA"), lambda _: None, __doc__)
