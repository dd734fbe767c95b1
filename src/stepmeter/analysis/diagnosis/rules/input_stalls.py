"""INPUT_STALLS: a few steps wait long for their batch, most do not.

*Fires* where the mean share reaches 10 % and the median step does not show it. A stall is a step whose input wait
exceeds its median by more than the larger of 5 median absolute deviations and half the median step; 10 % of all
time lost in stalls is a warning, 30 % is critical.
*Why*: a cold cache, a worker that starts, a shard that is opened, an epoch that begins.
*Next*: see which steps: the first of an epoch points to worker start, regular ones to shards, irregular ones to
storage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.stalls import THRESHOLDS, stalls_issue

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

ACTION = (
    "See which steps they are: the first of each epoch points to worker start (persistent_workers=True), regular ones "
    "to opening shards, irregular ones to storage."
)


def check(window: StepTimeWindow) -> Issue | None:
    """Judge the stalls in input wait."""
    return stalls_issue(window, "input_wait_ms", "INPUT_STALLS", ACTION)


RULE = Rule(("INPUT_STALLS",), check, __doc__, THRESHOLDS)
