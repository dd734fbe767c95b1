"""The section on the memory of steps: facts, then rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.memory import facts
from stepmeter.analysis.memory.rules import RULES, balanced
from stepmeter.analysis.section import SectionAnalysis, judge

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow
    from stepmeter.store.snapshot import Snapshot


def analyze_step_memory(source: Snapshot, window: StepTimeWindow, attempt: int | None) -> SectionAnalysis:
    """Judge the memory of a run's steps.

    Args:
        source: One snapshot of the store.
        window: The window of step time.
        attempt: The attempt that it is of; None before the first step.

    Returns:
        The section.
    """
    found = facts.load(source, window, attempt)
    return SectionAnalysis(found, judge(found, RULES, balanced.issue))
