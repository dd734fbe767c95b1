"""BALANCED: every rule could judge and none found anything.

*Why*: no single overhead and no single rank stands out of the step.
*Next*: only if the whole is too slow: a faster model, larger batches or more devices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.signals import WORDS, worst_rank
from stepmeter.analysis.step_time.model import SHARE_COMPONENTS
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow


def issue(window: StepTimeWindow) -> Issue:
    """Make the finding, which says how the step is made up."""
    parts = [
        f"{WORDS[name]} {format_share(window.shares[name].mean)}"
        for name in SHARE_COMPONENTS
        if name in window.shares and name != "compute_ms"
    ]
    step_time = window.metrics["step_time_ms"]
    whole = format_ms(step_time.median_ms)
    return Issue(
        kind="BALANCED",
        status="BALANCED",
        severity="info",
        summary=f"No bottleneck stands out of a step of {whole}: {', '.join(parts)}.",
        action="Only if this is too slow as a whole: make the model cheaper, the batch larger or the devices more.",
        metric="step_time_ms",
        skew=step_time.skew,
        ranks=worst_rank(window, "step_time_ms"),
        evidence={"shares": {name: share.mean for name, share in window.shares.items()}},
    )


RULE: Rule[StepTimeWindow] = Rule(("BALANCED",), lambda _: None, __doc__)
