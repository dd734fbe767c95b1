"""INPUT_BOUND: every step waits for its batch.

*Fires* when the share of input wait in step time, as median over ranks, reaches 10 % (warning) or 20 % (critical)
both as mean over the window and in the median step; where only the mean reaches it, see INPUT_STALLS.
*Why*: the loop stands still while the loader works; the device has nothing to do.
*Next*: more loader workers, prefetching, a faster store, or less work per sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Outcome, Rule
from stepmeter.analysis.diagnosis.signals import STEP_SIGNALS, abstain
from stepmeter.analysis.diagnosis.typical import CRIT_SHARE, WARN_SHARE, typical_issue

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

METRIC = "input_wait_ms"
ACTION = (
    "Give the DataLoader more workers (num_workers) and persistent_workers=True; if they are busy, cache or simplify "
    "the work per sample, or move to faster storage."
)


def check(window: StepTimeWindow) -> Outcome:
    """Judge the typical share of input wait."""
    if not window.cohorts.step:
        return abstain(window, STEP_SIGNALS)
    return typical_issue(window, METRIC, "INPUT_BOUND", ACTION, rank_by=METRIC)


RULE = Rule(("INPUT_BOUND",), check, __doc__, {"warn_share": WARN_SHARE, "crit_share": CRIT_SHARE})
