"""The analyzed facts of step time; the standard library only.

    StepTimeRepositorySnapshot   normalized source facts (`source`)
      → StepTimeWindow           aligned, analyzed facts
      → StepTimeAnalysis         the window and one diagnosis (`pipeline`)

Times are milliseconds as floats. None is never measured, 0.0 is measured zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal

from stepmeter.analysis.step_time.source import RankIdentity

Clock = Literal["cpu", "gpu"]
Profile = Literal["live", "summary"]

LIVE_WINDOW_STEPS = 100
SUMMARY_WINDOW_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class StepTimeValues:
    """Averages of one rank over the window, in milliseconds; None is unavailable.

    The selected clock holds for all fields without a clock in their name.
    """

    input_wait_ms: float | None = None
    step_time_ms: float | None = None
    traced_step_time_ms: float | None = None
    step_time_cpu_ms: float | None = None
    step_time_gpu_ms: float | None = None
    traced_step_time_cpu_ms: float | None = None
    traced_step_time_gpu_ms: float | None = None
    dataloader_fetch_cpu_ms: float | None = None
    h2d_ms: float | None = None
    compute_ms: float | None = None
    residual_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    optimizer_ms: float | None = None

    def get(self, metric: str) -> float | None:
        """The average of one of `METRICS`."""
        value: float | None = getattr(self, metric)
        return value


METRICS = tuple(item.name for item in fields(StepTimeValues))
"""Public names of the metrics, unit included."""

SHARE_COMPONENTS = ("input_wait_ms", "h2d_ms", "forward_ms", "backward_ms", "optimizer_ms", "compute_ms", "residual_ms")
"""Metrics whose share of step time is computed."""


@dataclass(frozen=True, slots=True)
class StepTimeRankFacts:
    """What one participating rank did in the window.

    Attributes:
        global_rank: The rank.
        average: Mean of each metric over the aligned steps.
        series: Value of each available metric on each aligned step, in their order.
        shares: Mean of each component over mean step time.
        typical_shares: Median over steps of each component's share of its step.
    """

    global_rank: int
    average: StepTimeValues
    series: Mapping[str, tuple[float, ...]]
    shares: Mapping[str, float]
    typical_shares: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class StepTimeMetric:
    """One metric across the ranks that measured it.

    Attributes:
        name: One of `METRICS`.
        ranks: Ranks that measured it, ascending.
        average_ms: Mean over ranks.
        median_ms: Mathematical median over ranks.
        low_ms: Lower end of the 95 % interval of `median_ms` over steps.
        high_ms: Upper end of that interval.
        representative_rank: The real rank nearest the median, then of lower value, then of lower id.
        representative_ms: That rank's value.
        worst_rank: The rank with the largest value, the lower id on a tie.
        worst_ms: That rank's value.
        skew: (worst - median) / median; 0 when both are 0; None for a single rank or when only the median is 0.
        median_series_ms: Median over ranks on each aligned step.
        worst_series_ms: Largest value over ranks on each aligned step.
    """

    name: str
    ranks: tuple[int, ...]
    average_ms: float
    median_ms: float
    low_ms: float
    high_ms: float
    representative_rank: int
    representative_ms: float
    worst_rank: int
    worst_ms: float
    skew: float | None
    median_series_ms: tuple[float, ...]
    worst_series_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StepTimeShare:
    """Share of a component in step time, 0 to 1, as medians over ranks.

    Attributes:
        mean: Mean component over mean step time.
        typical: Median over steps of the share in a step.
        low: Lower end of the 95 % interval of `mean`.
        high: Upper end of that interval.
    """

    mean: float
    typical: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class StepTimeCohorts:
    """Ranks that carry every signal which a kind of rule needs; nobody downstream computes them again.

    Attributes:
        step: Step time.
        compute: Step time and the three compute phases.
        straggler: Input wait measured, step time and backward above 0 (FSDP: forward too).
    """

    step: tuple[int, ...] = ()
    compute: tuple[int, ...] = ()
    straggler: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SilentRank:
    """A rank that stopped while others went on; it is no part of the window.

    Attributes:
        global_rank: The rank.
        last_step: Its last step.
        behind_steps: How far the furthest rank is ahead.
        age_s: How long before the latest step of another rank its last one ended.
    """

    global_rank: int
    last_step: int
    behind_steps: int
    age_s: float


@dataclass(frozen=True, slots=True)
class StepTimeCoverage:
    """How much of what happened the window holds.

    Attributes:
        expected_steps: Steps that any participating rank completed within the window's reach, warm-up apart.
        steps_used: Aligned steps.
        world_size: Size of the rank universe.
        ranks_present: Participating ranks.
        completed_step: Last step that all participating ranks completed; None without one.
        latest_step: Greatest step of any rank; None without one.
        warmup_left_out: Common steps left out as warm-up.
        gpu_pairs_lost: Common steps left out because a device time was lost.
        recorded_steps: Steps in the store, all ranks of the attempt.
        missing_steps: Gaps in the numbering, by rank; ranks without gaps are absent.
        dropped: What producers reported as lost, by kind.
        silent: Ranks that stopped while others went on.
        duration_s: From the first step's start to the last step's end, all ranks; None without steps.
        nodes_expected: Nodes that the world size makes; None when it is not known how many ranks share one.
    """

    expected_steps: int = 0
    steps_used: int = 0
    world_size: int = 0
    ranks_present: int = 0
    completed_step: int | None = None
    latest_step: int | None = None
    warmup_left_out: int = 0
    gpu_pairs_lost: int = 0
    recorded_steps: int = 0
    missing_steps: Mapping[int, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    silent: tuple[SilentRank, ...] = ()
    duration_s: float | None = None
    nodes_expected: int | None = None


@dataclass(frozen=True, slots=True)
class StepTimeWindow:
    """The latest steps that all participating ranks completed, analyzed on one clock.

    Attributes:
        clock: The clock of the whole window.
        steps: Aligned step numbers, ascending.
        window_size: How many steps the window may hold.
        training_strategy: Strategy of the run; None when not known, then treated as ddp.
        expected_ranks: The rank universe.
        rank_facts: What each participating rank did, by rank ascending.
        identities: Where each reporting rank ran.
        metrics: Statistics of each metric that any rank measured.
        shares: Share of each component that any rank measured.
        cohorts: Which ranks each kind of rule may use.
        coverage: How much of what happened the window holds.
        backward_waits_ms: What DDP measured of how long backward waited for other ranks, ascending, by rank; ranks
            without a measure are absent. Of the window and somewhat before, since DDP measures few steps.
    """

    clock: Clock = "cpu"
    steps: tuple[int, ...] = ()
    window_size: int = SUMMARY_WINDOW_STEPS
    training_strategy: str | None = None
    expected_ranks: tuple[int, ...] = ()
    rank_facts: tuple[StepTimeRankFacts, ...] = ()
    identities: Mapping[int, RankIdentity] = field(default_factory=dict)
    metrics: Mapping[str, StepTimeMetric] = field(default_factory=dict)
    shares: Mapping[str, StepTimeShare] = field(default_factory=dict)
    cohorts: StepTimeCohorts = StepTimeCohorts()
    coverage: StepTimeCoverage = StepTimeCoverage()
    backward_waits_ms: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    @property
    def is_fsdp(self) -> bool:
        """Whether parameters are sharded, so that forward waits for other ranks too."""
        return (self.training_strategy or "").startswith("fsdp")

    @property
    def ranks(self) -> tuple[int, ...]:
        """The participating ranks, ascending."""
        return tuple(facts.global_rank for facts in self.rank_facts)

    def facts(self, global_rank: int) -> StepTimeRankFacts:
        """What a participating rank did.

        Raises:
            KeyError: The rank takes no part in the window.
        """
        for facts in self.rank_facts:
            if facts.global_rank == global_rank:
                return facts
        raise KeyError(global_rank)
