"""H2D_STALLS: a few steps copy for long, most do not.

*Fires* where the mean share reaches 10 % and the median step does not show it. A stall is a step whose H2D
transfer exceeds its median by more than the larger of 5 median absolute deviations and half the median step; 10 %
of all time lost in stalls is a warning, 30 % is critical. On the GPU clock only.
*Why*: single batches that are much larger, or a copy that waits for pinned memory.
*Next*: look at the sizes of the batches of the named steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.stalls import THRESHOLDS, stalls_issue

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

ACTION = "Compare the batch sizes of the named steps with the others, and pin memory ahead (pin_memory=True)."


def check(window: StepTimeWindow) -> Issue | None:
    """Judge the stalls in H2D transfer."""
    if window.clock != "gpu":
        return None
    return stalls_issue(window, "h2d_ms", "H2D_STALLS", ACTION)


RULE = Rule(("H2D_STALLS",), check, __doc__, THRESHOLDS)
