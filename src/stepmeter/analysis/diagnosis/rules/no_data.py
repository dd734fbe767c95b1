"""NO_DATA: no step was completed by all ranks that take part, so there is nothing to judge.

*Why*: nothing trained under observation, the program ended before its first update, or its steps could not be
seen. A run that holds spans or logged rows instead, as an agent's, has the status NO TRAINING, and its next step is to
look at those.
*Next*: look whether the program calls an optimizer, and whether `stepmeter doctor` finds torch in the same
Python; where updates are written by hand, put each step into `with stepmeter.trace_step(model):`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow


def check(window: StepTimeWindow) -> Issue | None:
    """Give the finding when the window has no step."""
    if window.steps:
        return None
    recorded = window.coverage.recorded_steps
    return Issue(
        kind="NO_DATA",
        status="NO DATA",
        severity="info",
        summary=(
            f"{recorded} steps were recorded, none of them by all {window.coverage.ranks_present} ranks."
            if recorded
            else "No training step was recorded."
        ),
        action=(
            "Check that the program reached an optimizer step in a Python in which `stepmeter doctor` finds torch; "
            "where updates are written by hand, put each step into `with stepmeter.trace_step(model):`."
        ),
        evidence={"recorded_steps": recorded},
    )


RULE = Rule(("NO_DATA",), check, __doc__, {"min_steps": 1})
