"""Runs the rules over a window and orders what they find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import SEVERITIES, Abstention, Diagnosis, Issue
from stepmeter.analysis.diagnosis.rules import GATES, RULES, balanced, incomplete_data

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow


def diagnose(window: StepTimeWindow) -> Diagnosis:
    """Judge a window.

    Args:
        window: The analyzed window.

    Returns:
        At least one finding, the primary one first. A window too short for any rule gives that alone.
    """
    for gate in GATES:
        outcome = gate.check(window)
        if isinstance(outcome, Issue):
            return Diagnosis((outcome,))
    outcomes = [rule.check(window) for rule in RULES]
    issues = [outcome for outcome in outcomes if isinstance(outcome, Issue)]
    if issues:
        return Diagnosis(order(issues))
    signals = [signal for outcome in outcomes if isinstance(outcome, Abstention) for signal in outcome.signals]
    if signals:
        return Diagnosis((incomplete_data.issue(window, signals),))
    return Diagnosis((balanced.issue(window),))


def order(issues: list[Issue]) -> tuple[Issue, ...]:
    """Put findings in order: severity, score, stragglers before others on an exact tie, then as given."""

    def key(issue: Issue) -> tuple[int, float, bool]:
        score = -1.0 if issue.score is None else issue.score
        return (-SEVERITIES.index(issue.severity), -score, not issue.is_straggler)

    return tuple(sorted(issues, key=key))
