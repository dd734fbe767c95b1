"""WARMUP: there are steps, but fewer than a diagnosis needs.

*Why*: a single step says nothing about the others.
*Next*: let the program run for more steps; from 2 there are findings, from 20 critical ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import MIN_STEPS, MIN_STEPS_FOR_CRIT

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow


def check(window: StepTimeWindow) -> Issue | None:
    """Give the finding when the window has too few steps."""
    if not 0 < len(window.steps) < MIN_STEPS:
        return None
    return Issue(
        kind="WARMUP",
        status="WARMUP",
        severity="info",
        summary=f"{len(window.steps)} step was completed by all ranks; a diagnosis needs {MIN_STEPS}.",
        action=f"Let the program run for {MIN_STEPS_FOR_CRIT} steps or more.",
        evidence={"steps_used": len(window.steps), "min_steps": MIN_STEPS},
    )


RULE = Rule(("WARMUP",), check, __doc__, {"min_steps": MIN_STEPS})
