"""H2D_BOUND: every step copies its batch to the device while nothing else runs.

*Fires* when the share of H2D transfer in step time, as median over ranks, reaches 10 % (warning) or 20 %
(critical) both as mean over the window and in the median step; where only the mean reaches it, see H2D_STALLS. On
the GPU clock only: a CPU clock sees when a copy was asked for, not how long it took.
*Why*: copies from pageable memory block the device.
*Next*: `pin_memory=True` in the loader and `non_blocking=True` in the copies; smaller or compacter batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Outcome, Rule
from stepmeter.analysis.diagnosis.signals import STEP_SIGNALS, abstain
from stepmeter.analysis.diagnosis.typical import CRIT_SHARE, WARN_SHARE, typical_issue

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

METRIC = "h2d_ms"
ACTION = (
    "Use pin_memory=True in the DataLoader and non_blocking=True in .to(device); copy compact types and convert on "
    "the device."
)


def check(window: StepTimeWindow) -> Outcome:
    """Judge the typical share of H2D transfer."""
    if window.clock != "gpu":
        return None
    if not window.cohorts.step:
        return abstain(window, STEP_SIGNALS)
    return typical_issue(window, METRIC, "H2D_BOUND", ACTION, rank_by=METRIC)


RULE = Rule(("H2D_BOUND",), check, __doc__, {"warn_share": WARN_SHARE, "crit_share": CRIT_SHARE})
