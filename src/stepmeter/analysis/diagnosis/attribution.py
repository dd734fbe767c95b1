"""Which rank came late, which one waited for it, and what the late one did meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
