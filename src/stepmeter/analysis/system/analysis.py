"""The section on hosts and GPUs: facts, then rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.section import SectionAnalysis, judge
from stepmeter.analysis.system.facts import system_facts
from stepmeter.analysis.system.rules import RULES, normal

if TYPE_CHECKING:
    from stepmeter.analysis.readings import Readings


def analyze_system(readings: Readings, *, has_gpu: bool) -> SectionAnalysis:
    """Judge the nodes of a run.

    Args:
        readings: What was read while steps ran.
        has_gpu: Whether any rank worked on a GPU.

    Returns:
        The section.
    """
    facts = system_facts(readings, has_gpu=has_gpu)
    return SectionAnalysis(facts, judge(facts, RULES, normal.issue))
