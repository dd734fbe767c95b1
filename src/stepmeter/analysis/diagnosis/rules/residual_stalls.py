"""RESIDUAL_STALLS: a few steps spend long outside all measured phases, most do not.

*Fires* where the mean share reaches 10 % and the median step does not show it. A stall is a step whose residual
time exceeds its median by more than the larger of 5 median absolute deviations and half the median step; 10 % of
all time lost in stalls is a warning, 30 % is critical.
*Why*: checkpoints, evaluation, logging, garbage collection: work that happens now and then.
*Next*: do it less often, or beside the training: asynchronous checkpoints, metrics in the background.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.stalls import THRESHOLDS, stalls_issue

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

ACTION = (
    "See what the named steps have in common: a checkpoint, an evaluation, a log upload; do it less often or in the "
    "background (torch.distributed.checkpoint.async_save)."
)


def check(window: StepTimeWindow) -> Issue | None:
    """Judge the stalls in residual time."""
    return stalls_issue(window, "residual_ms", "RESIDUAL_STALLS", ACTION)


RULE = Rule(("RESIDUAL_STALLS",), check, __doc__, THRESHOLDS)
