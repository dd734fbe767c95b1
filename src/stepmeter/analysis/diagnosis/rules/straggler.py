"""INPUT_STRAGGLER, H2D_STRAGGLER, COMPUTE_STRAGGLER, STRAGGLER: one rank comes late and the others wait for it.

In synchronised training ranks wait for one another in backward (ddp) or in forward and backward (fsdp). The rank
that comes late waits least: it is the culprit; the victim is the rank with the upper median of that visible
phase. The score is the difference over the victim's step time; 10 % is a warning, 20 % is critical.

*Fires* only if the culprit spent at least half of the difference elsewhere; else nobody waited, see SLOW_RANK.
The cause is what the culprit did longer than the victim: input wait, H2D transfer or (ddp only) forward. One that
explains 80 % of the difference names the finding; otherwise it is STRAGGLER, with a component that is
synchronisation or not attributed.

A rank that is slow *in* backward makes backward equally long on all ranks of ddp. Where DDP's own logger says how long
each waits there (four measures or more a rank), the rank that waits least is the culprit, and what it spends in
backward itself is the cause: COMPUTE_STRAGGLER on backward.
*Why*: all ranks go at the pace of the slowest.
*Next*: look at that rank: its storage, its data shard, its host, its device's clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.attribution import (
    CRIT_SCORE,
    MIN_CAUSE_COVERAGE,
    MIN_HIDDEN_SHARE,
    MIN_WAITS,
    WARN_SCORE,
    Attribution,
    attribute,
    attribute_backward,
    own_backward_ms,
)
from stepmeter.analysis.diagnosis.model import Issue, Outcome, Rule
from stepmeter.analysis.diagnosis.policy import reaches, severity
from stepmeter.analysis.diagnosis.signals import WORDS, abstain, skew
from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeWindow

KINDS = {
    "input_wait": "INPUT_STRAGGLER",
    "h2d": "H2D_STRAGGLER",
    "forward": "COMPUTE_STRAGGLER",
    "backward": "COMPUTE_STRAGGLER",
}
ACTIONS = {
    "input_wait": "Inspect the input of rank {rank}: its shard, its storage, the CPU cores its workers share.",
    "h2d": "Inspect the transfers of rank {rank}: its batch sizes, pinned memory, the PCIe link of its device.",
    "forward": "Inspect the forward of rank {rank}: uneven sequence lengths, a device that is throttled or shared.",
    "backward": "Inspect the backward of rank {rank}: uneven work or sequence lengths, a device throttled or shared.",
    None: "Inspect what rank {rank} does outside the measured phases, and the collectives it takes part in.",
}


def check(window: StepTimeWindow) -> Outcome:
    """Judge whether a rank keeps the others waiting."""
    attribution = attribute(window)
    if attribution is None:
        signals = ("input_wait", *(("forward",) if window.is_fsdp else ()), "backward", "traced")
        return abstain(window, signals) if len(window.ranks) > 1 else None
    if attribution.names_a_straggler:
        return _issue(window, attribution, _cause(attribution))
    in_backward = attribute_backward(window)
    if in_backward is not None and in_backward.names_a_straggler and _cause(in_backward) == "backward":
        return _issue(window, in_backward, "backward")
    return None


def _issue(window: StepTimeWindow, attribution: Attribution, cause: str | None) -> Issue | None:
    level = severity(attribution.score, WARN_SCORE, CRIT_SCORE, window)
    if level is None:
        return None
    kind = KINDS.get(cause or "", "STRAGGLER")
    metric = f"{cause}_ms" if cause else "backward_ms"
    return Issue(
        kind=kind,
        status=kind.replace("_", " "),
        severity=level,
        summary=_summary(window, attribution, cause),
        action=ACTIONS[cause].format(rank=attribution.culprit),
        metric=metric,
        phase=cause or attribution.visible,
        score=attribution.score,
        skew=skew(window, metric),
        ranks=(attribution.culprit,),
        evidence=_evidence(attribution, cause),
    )


def _cause(attribution: Attribution) -> str | None:
    coverage = attribution.coverage
    best = max(coverage, key=lambda cause: coverage[cause], default=None)
    return best if best is not None and reaches(coverage[best], MIN_CAUSE_COVERAGE) else None


def _summary(window: StepTimeWindow, attribution: Attribution, cause: str | None) -> str:
    culprit, victim = attribution.culprit, attribution.victim
    waits = (
        f"rank {victim} waits for it {format_ms(attribution.cost_ms)} in every step "
        f"({format_share(attribution.score)} of its step time)"
    )
    if cause is None:
        return f"Rank {culprit} comes late and {waits}; no measured phase explains it."
    if cause == "backward":
        mine, theirs = (format_ms(own_backward_ms(window, attribution, rank)) for rank in (culprit, victim))
        return f"Rank {culprit} computes {mine} in backward, rank {victim} {theirs}; so, inside backward, {waits}."
    metric = f"{cause}_ms"
    mine, theirs = (format_ms(window.facts(rank).average.get(metric)) for rank in (culprit, victim))
    return f"Rank {culprit} spends {mine} in {WORDS[metric]}, rank {victim} {theirs}; so {waits}."


def _evidence(attribution: Attribution, cause: str | None) -> dict[str, object]:
    return {
        "component": cause or "sync_or_unattributed",
        "culprit_rank": attribution.culprit,
        "victim_rank": attribution.victim,
        "visible_metric": attribution.visible,
        "visible_culprit_ms": attribution.visible_culprit_ms,
        "visible_victim_ms": attribution.visible_victim_ms,
        "cost_ms": attribution.cost_ms,
        "step_time_ms": attribution.step_time_victim_ms,
        "hidden_excess_ms": attribution.hidden_excess_ms,
        "component_excesses_ms": dict(attribution.excesses_ms),
        "component_coverage": attribution.coverage,
    }


RULE = Rule(
    (*dict.fromkeys(KINDS.values()), "STRAGGLER"),
    check,
    __doc__,
    {
        "warn_score": WARN_SCORE,
        "crit_score": CRIT_SCORE,
        "min_cause_coverage": MIN_CAUSE_COVERAGE,
        "min_hidden_share": MIN_HIDDEN_SHARE,
        "min_waits": MIN_WAITS,
    },
)
