"""NO_GPU: no rank worked on a GPU, so that GPU metrics are null and the rules on them say nothing.

*Fires*, as information, in the sections system, process and step memory of a run on CPUs alone.
*Why*: torch saw no CUDA device, or the program did not use one.
*Next*: nothing, if that was meant; else `stepmeter doctor` says which devices this Python sees.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionFacts


def check(facts: SectionFacts) -> Issue | None:
    """Give the finding when there was something to read, and no GPU in it."""
    if facts.has_gpu or not (facts.rows or facts.n_steps):
        return None
    return Issue(
        kind="NO_GPU",
        status="NO GPU",
        severity="info",
        summary="No rank worked on a GPU, so there is no device to judge.",
        action="Nothing to do if that was meant; else see with `stepmeter doctor` which devices this Python finds.",
    )


RULE = Rule(("NO_GPU",), check, __doc__)
