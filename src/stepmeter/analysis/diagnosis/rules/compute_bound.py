"""COMPUTE_BOUND: the step is forward, backward and optimizer, and hardly anything else.

*Fires*, as information, when the median compute share reaches 90 % and neither input wait, nor H2D transfer (on
the GPU clock), nor residual time reaches 10 %.
*Why*: the device has work all the time; overheads are not what costs.
*Next*: make the largest phase cheaper: mixed precision, `torch.compile`, a smaller model, a larger batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.analysis.diagnosis.signals import COMPUTE_SIGNALS, WORDS, abstain, phase_of, skew, worst_rank
from stepmeter.analysis.diagnosis.typical import WARN_SHARE
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

MIN_COMPUTE_SHARE = 0.90
"""Source: the threshold of traceml-ai 0.5.0."""


def check(window: StepTimeWindow) -> Outcome:
    """Judge the share of compute."""
    if not window.cohorts.compute:
        return abstain(window, COMPUTE_SIGNALS)
    if "compute_ms" not in window.shares:
        return None
    share = window.shares["compute_ms"].mean
    if not reaches(share, MIN_COMPUTE_SHARE) or _has_overhead(window):
        return None
    largest = max(("forward_ms", "backward_ms", "optimizer_ms"), key=lambda name: window.metrics[name].median_ms)
    found = window.metrics[largest]
    return Issue(
        kind="COMPUTE_BOUND",
        status="COMPUTE-BOUND",
        severity="info",
        summary=(
            f"Compute is {format_share(share)} of the typical step time; {WORDS[largest]} is the largest phase with "
            f"{format_ms(found.median_ms)} ({format_share(window.shares[largest].mean)})."
        ),
        action="Make that phase cheaper: mixed precision, torch.compile, a smaller model; or raise the batch size.",
        metric="compute_ms",
        phase=phase_of(largest),
        share=share,
        skew=skew(window, "compute_ms"),
        ranks=worst_rank(window, "step_time_ms"),
        evidence={"largest_phase_ms": found.median_ms, "largest_phase_share": window.shares[largest].mean},
    )


def _has_overhead(window: StepTimeWindow) -> bool:
    names = ("input_wait_ms", "residual_ms", *(("h2d_ms",) if window.clock == "gpu" else ()))
    return any(reaches(window.shares[name].mean, WARN_SHARE) for name in names if name in window.shares)


RULE = Rule(("COMPUTE_BOUND",), check, __doc__, {"min_compute_share": MIN_COMPUTE_SHARE, "overhead_share": WARN_SHARE})
