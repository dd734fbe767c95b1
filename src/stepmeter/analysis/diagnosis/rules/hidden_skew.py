"""BACKWARD_SKEW_HIDDEN: backward is so long that ranks may be waiting in it, unseen which one for which.

Synchronised ranks end backward together, so a rank that is slow *in* backward makes it equally long on all.

*Fires*, as information, for two or more synchronised ddp ranks whose backward takes three times forward or more
and half of the step or more, and is equally long (within 10 %) on all, unless DDP's own logger tells how long each
rank waits in it. Computing gradients costs about twice the
forward, three times with activation checkpointing; what is beyond that is communication or waiting.
*Why*: a slow device or uneven work may hide behind the collective.
*Next*: time the collectives apart, or run a few hundred steps of each rank alone and compare.

Source: Kaplan et al., "Scaling Laws for Neural Language Models", 2020, section 2.1 (backward is twice forward).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.attribution import MIN_WAITS, attribute
from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import ROUNDING, reaches
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

MIN_RATIO = 3.0
MIN_SHARE = 0.5
MAX_SKEW = 0.10


def check(window: StepTimeWindow) -> Outcome:
    """Judge whether backward may hide a slow rank."""
    attribution = attribute(window)
    share = window.shares.get("backward_ms")
    if window.is_fsdp or attribution is None or attribution.names_a_straggler or share is None:
        return None
    if all(len(window.backward_waits_ms.get(rank, ())) >= MIN_WAITS for rank in window.cohorts.straggler):
        return None
    forward, backward = window.metrics.get("forward_ms"), window.metrics["backward_ms"]
    if forward is None or not reaches(share.mean, MIN_SHARE):
        return None
    equally_long = all(
        (window.metrics[name].skew or 0.0) <= MAX_SKEW + ROUNDING for name in ("backward_ms", "step_time_ms")
    )
    if not equally_long or backward.median_ms < MIN_RATIO * forward.median_ms - ROUNDING:
        return None
    return Issue(
        kind="BACKWARD_SKEW_HIDDEN",
        status="BACKWARD SKEW HIDDEN",
        severity="info",
        summary=(
            f"Backward takes {format_ms(backward.median_ms)} on every rank ({format_share(share.mean)} of the step), "
            f"forward {format_ms(forward.median_ms)}: a rank that is slow in backward would look just like this, since "
            "the others wait for it inside the collective."
        ),
        action=(
            "See the collectives apart with torch.profiler on two ranks, or run some hundred steps of each rank alone "
            "and compare their backward."
        ),
        metric="backward_ms",
        phase="backward",
        share=share.mean,
        skew=backward.skew,
        evidence={"backward_ms": backward.median_ms, "forward_ms": forward.median_ms},
    )


RULE = Rule(
    ("BACKWARD_SKEW_HIDDEN",), check, __doc__, {"min_ratio": MIN_RATIO, "min_share": MIN_SHARE, "max_skew": MAX_SKEW}
)
