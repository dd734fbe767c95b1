"""The section on training processes: facts, then rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.process.facts import process_facts
from stepmeter.analysis.process.rules import RULES, normal
from stepmeter.analysis.section import SectionAnalysis, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepmeter.analysis.readings import Readings
    from stepmeter.analysis.section import SectionFacts
    from stepmeter.analysis.step_time.source import RankIdentity


def analyze_processes(
    readings: Readings, identities: Mapping[int, RankIdentity], step_memory: SectionFacts
) -> SectionAnalysis:
    """Judge the processes of a run.

    Args:
        readings: What was read while steps ran.
        identities: Where each reporting rank ran.
        step_memory: The facts of the steps' memory.

    Returns:
        The section.
    """
    facts = process_facts(readings, identities, step_memory)
    return SectionAnalysis(facts, judge(facts, RULES, normal.issue))
