"""Which rank came late, which one waited for it, and what the late one did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.policy import reaches

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import StepTimeValues, StepTimeWindow

WARN_SCORE = 0.10
CRIT_SCORE = 0.20
"""Cost over the victim's step time."""

MIN_CAUSE_COVERAGE = 0.80
"""Share of the cost that one cause must explain to name the finding."""

MIN_HIDDEN_SHARE = 0.50
"""Share of the cost that the culprit must have spent elsewhere, or nobody waited for it."""

MIN_WAITS = 4
"""Measures of a rank's wait in backward that make a comparison; DDP takes ten at first and then one in 100 steps."""

MAX_OVERLAP_QUANTILE = 0.1
"""The culprit's waits but for the longest such share lie below the victim's but for the shortest."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """The least and the typical visible phase of synchronised ranks.

    The visible phase is where ranks wait for one another: backward under ddp, forward and backward under fsdp. Who
    came late waits least there.

    Attributes:
        culprit: Rank of the least visible time.
        victim: Rank of the upper median visible time.
        visible: Name of the visible phase.
        visible_culprit_ms: Visible time of the culprit.
        visible_victim_ms: Visible time of the victim.
        step_time_victim_ms: Step time of the victim.
        hidden_excess_ms: What the culprit spent outside the visible phase beyond what the victim did.
        excesses_ms: Excess of the culprit over the victim in each cause measured on both, 0 or more.
    """

    culprit: int
    victim: int
    visible: str
    visible_culprit_ms: float
    visible_victim_ms: float
    step_time_victim_ms: float
    hidden_excess_ms: float
    excesses_ms: Mapping[str, float]

    @property
    def cost_ms(self) -> float:
        """What the victim spends visibly beyond the culprit, in a step."""
        return self.visible_victim_ms - self.visible_culprit_ms

    @property
    def score(self) -> float:
        """Cost as a share of the victim's step."""
        return self.cost_ms / self.step_time_victim_ms

    @property
    def someone_waited(self) -> bool:
        """Whether the culprit was busy elsewhere for long enough to explain the victim's time."""
        return reaches(self.hidden_excess_ms, MIN_HIDDEN_SHARE * self.cost_ms)

    @property
    def coverage(self) -> dict[str, float]:
        """Share of the cost that each cause explains, at most 1."""
        return {cause: min(1.0, excess_ms / self.cost_ms) for cause, excess_ms in self.excesses_ms.items()}

    @property
    def names_a_straggler(self) -> bool:
        """Whether the cost is material and somebody waited."""
        return reaches(self.score, WARN_SCORE) and self.someone_waited


def attribute(window: StepTimeWindow) -> Attribution | None:
    """Compare the ranks of the straggler cohort.

    Args:
        window: The analyzed window.

    Returns:
        None with fewer than two ranks in the cohort.
    """
    cohort = window.cohorts.straggler
    if len(cohort) < 2:
        return None
    averages = {rank: window.facts(rank).average for rank in cohort}
    visible = {rank: _visible_ms(mean, window) for rank, mean in averages.items()}
    ascending = sorted(cohort, key=lambda rank: (visible[rank], rank))
    culprit, victim = ascending[0], ascending[len(ascending) // 2]
    return Attribution(
        culprit=culprit,
        victim=victim,
        visible="forward_backward" if window.is_fsdp else "backward",
        visible_culprit_ms=visible[culprit],
        visible_victim_ms=visible[victim],
        step_time_victim_ms=averages[victim].step_time_ms or 0.0,
        hidden_excess_ms=_hidden_ms(averages[culprit], visible[culprit])
        - _hidden_ms(averages[victim], visible[victim]),
        excesses_ms=_excesses(averages[culprit], averages[victim], window),
    )


def attribute_backward(window: StepTimeWindow) -> Attribution | None:
    """Compare the ranks of the straggler cohort by how long each waits inside backward, as DDP measured it.

    A rank that is slow *in* backward makes backward equally long on all: only what each waits there tells them apart.

    Args:
        window: The analyzed window.

    Returns:
        None with fewer than two ranks in the cohort, under fsdp, where a rank lacks the measure, and where the waits of
        culprit and victim can't be told apart.
    """
    cohort = window.cohorts.straggler
    waits = {rank: window.backward_waits_ms.get(rank, ()) for rank in cohort}
    if len(cohort) < 2 or window.is_fsdp or min(map(len, waits.values())) < MIN_WAITS:
        return None
    typical = {rank: median(values) for rank, values in waits.items()}
    ascending = sorted(cohort, key=lambda rank: (typical[rank], rank))
    culprit, victim = ascending[0], ascending[len(ascending) // 2]
    if _from_end(waits[culprit], -1) >= _from_end(waits[victim], 1):
        return None
    averages = {rank: window.facts(rank).average for rank in (culprit, victim)}
    own_ms = {rank: _own_ms(mean, typical[rank]) for rank, mean in averages.items()}
    return Attribution(
        culprit=culprit,
        victim=victim,
        visible="backward_wait",
        visible_culprit_ms=typical[culprit],
        visible_victim_ms=typical[victim],
        step_time_victim_ms=averages[victim].step_time_ms or 0.0,
        hidden_excess_ms=_hidden_ms(averages[culprit], typical[culprit])
        - _hidden_ms(averages[victim], typical[victim]),
        excesses_ms={
            **_excesses(averages[culprit], averages[victim], window),
            "backward": max(0.0, own_ms[culprit] - own_ms[victim]),
        },
    )


def own_backward_ms(window: StepTimeWindow, attribution: Attribution, rank: int) -> float:
    """What culprit or victim does in backward itself.

    Args:
        window: The analyzed window.
        attribution: As `attribute_backward` gave it.
        rank: The culprit or the victim.

    Returns:
        Backward less the wait, 0 or more, in ms.
    """
    is_culprit = rank == attribution.culprit
    wait_ms = attribution.visible_culprit_ms if is_culprit else attribution.visible_victim_ms
    return _own_ms(window.facts(rank).average, wait_ms)


def _own_ms(mean: StepTimeValues, wait_ms: float) -> float:
    return max(0.0, (mean.backward_ms or 0.0) - wait_ms)


def _from_end(ascending: tuple[float, ...], side: int) -> float:
    skipped = int(len(ascending) * MAX_OVERLAP_QUANTILE)
    return ascending[skipped] if side > 0 else ascending[-1 - skipped]


def _visible_ms(mean: StepTimeValues, window: StepTimeWindow) -> float:
    return (mean.backward_ms or 0.0) + ((mean.forward_ms or 0.0) if window.is_fsdp else 0.0)


def _hidden_ms(mean: StepTimeValues, visible_ms: float) -> float:
    return (mean.step_time_ms or 0.0) - visible_ms


def _excesses(culprit: StepTimeValues, victim: StepTimeValues, window: StepTimeWindow) -> dict[str, float]:
    """Forward is a cause only where ranks do not wait in it, and only where both did some."""
    causes = ("input_wait", "h2d") if window.is_fsdp else ("input_wait", "h2d", "forward")
    excesses = {}
    for cause in causes:
        mine, theirs = culprit.get(f"{cause}_ms"), victim.get(f"{cause}_ms")
        if mine is not None and theirs is not None and (cause != "forward" or min(mine, theirs) > 0):
            excesses[cause] = max(0.0, mine - theirs)
    return excesses
