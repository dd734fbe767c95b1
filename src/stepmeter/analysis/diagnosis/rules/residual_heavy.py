"""RESIDUAL_HEAVY: every step spends time outside all measured phases.

*Fires* when the share of residual time in step time, as median over ranks, reaches 10 % (warning) or 20 %
(critical) both as mean over the window and in the median step; where only the mean reaches it, see
RESIDUAL_STALLS.
*Why*: `max(0, traced - h2d - forward - backward - optimizer)`: losses, metrics, logging, synchronisation, Python.
It is unattributed time, and no proof of communication.
*Next*: look at what the loop does beside the model; do a suspect on every tenth step only and compare.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Outcome, Rule
from stepmeter.analysis.diagnosis.signals import COMPUTE_SIGNALS, abstain
from stepmeter.analysis.diagnosis.typical import CRIT_SHARE, WARN_SHARE, typical_issue

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

METRIC = "residual_ms"
ACTION = (
    "Look at what the loop does outside the model: .item() and logging on every step, metrics, the loss outside the "
    "model; do a suspect on every tenth step only and compare."
)


def check(window: StepTimeWindow) -> Outcome:
    """Judge the typical share of residual time."""
    if not window.cohorts.compute:
        return abstain(window, COMPUTE_SIGNALS)
    return typical_issue(window, METRIC, "RESIDUAL_HEAVY", ACTION, rank_by="step_time_ms")


RULE = Rule(("RESIDUAL_HEAVY",), check, __doc__, {"warn_share": WARN_SHARE, "crit_share": CRIT_SHARE})
