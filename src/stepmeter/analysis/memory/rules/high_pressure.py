"""HIGH_PRESSURE: the peak of a step came close to the memory of its device.

*Fires*, from 50 steps on, when the greatest peak of a rank, of what tensors held or of what the allocator reserved,
is 92 % (warning) or 97 % (critical) of the device's memory. Where the device's memory is not known the rule says
nothing.
*Why*: the next longer sequence or larger batch fails, or the allocator frees and searches in every step.
*Next*: a smaller batch, activation checkpointing, sharding, or optimizer states in fewer bits.

Source: the thresholds of traceml-ai 0.5.0, so that findings can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import format_bytes, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.memory.facts import StepMemoryFacts

MIN_STEPS = 50
WARN_SHARE = 0.92
CRIT_SHARE = 0.97


def check(facts: StepMemoryFacts) -> Outcome:
    """Judge the rank under the greatest pressure."""
    found = [
        (share, -rank, kind)
        for kind in ("allocated", "reserved")
        for rank, share in facts.values(f"peak_{kind}_share").items()
    ]
    if facts.n_steps < MIN_STEPS or not found:
        return None
    share, minus_rank, kind = max(found)
    if not reaches(share, WARN_SHARE):
        return None
    rank, metric = -minus_rank, f"peak_{kind}_bytes"
    peak_bytes = facts.rows[rank].metrics[metric]
    return Issue(
        kind="HIGH_PRESSURE",
        status="HIGH PRESSURE",
        severity="crit" if reaches(share, CRIT_SHARE) else "warn",
        summary=(
            f"Rank {rank} {kind} {format_bytes(peak_bytes)} in a step, {format_share(share)} of its device's memory."
        ),
        action="Use a smaller batch, activation checkpointing, sharding, or optimizer states in fewer bits.",
        metric=metric,
        score=share,
        share=share,
        ranks=(rank,),
        evidence={"rank": rank, "kind": kind, "pressure": share, metric: peak_bytes},
    )


RULE = Rule(("HIGH_PRESSURE",), check, __doc__, {"min_steps": MIN_STEPS, "warn": WARN_SHARE, "crit": CRIT_SHARE})
