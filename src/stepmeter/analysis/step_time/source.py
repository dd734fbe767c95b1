"""What the store says about step time, normalized; the standard library only.

Times are milliseconds as floats from here on; the store holds integer nanoseconds. None is never measured, 0.0 is
measured zero.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

TRACED = "traced"
PHASES = ("input_wait", "h2d", "forward", "backward", "optimizer")
SOURCE_METRICS = (*PHASES, TRACED)
"""What a source row may hold, each as a pair of clocks."""

BACKWARD_WAIT = "backward_wait"
"""What a few rows hold too, on one clock: how long backward waited for other ranks, as DDP measured it."""

OCCASIONAL = ("h2d", "optimizer")
"""Measured on any aligned step, other steps then having done no such work."""


@dataclass(frozen=True, slots=True)
class StepTimeSourceRow:
    """One completed step of one rank as stored.

    Attributes:
        source_id: Position of the row; of two rows for one rank and step the larger counts.
        global_rank: The rank.
        step: Number of the step.
        metrics: CPU and GPU milliseconds of each of `SOURCE_METRICS` that was observed; under `BACKWARD_WAIT` the one
            measure that there is, and None.
        warmup: Whether the step compiled, initialised or was the first of its process.
    """

    source_id: int
    global_rank: int
    step: int
    metrics: Mapping[str, tuple[float | None, float | None]]
    warmup: bool = False


@dataclass(frozen=True, slots=True)
class RankIdentity:
    """Where a rank ran; None is not known."""

    global_rank: int
    local_rank: int | None = None
    node_rank: int | None = None
    host: str | None = None
    world_size: int | None = None
    hw_id: str | None = None


@dataclass(frozen=True, slots=True)
class RankProgress:
    """How far a rank has come, over the whole attempt and not only its loaded rows.

    Attributes:
        recorded_steps: Steps in the store.
        first_step: Least step number.
        last_step: Greatest step number.
        first_start_ns: Start of the first step, Unix time in ns.
        last_end_ns: End of the last step, Unix time in ns.
    """

    recorded_steps: int
    first_step: int
    last_step: int
    first_start_ns: int
    last_end_ns: int

    @property
    def missing_steps(self) -> int:
        """Gaps in the numbering between the first and the last step."""
        return self.last_step - self.first_step + 1 - self.recorded_steps


@dataclass(frozen=True, slots=True)
class StepTimeSourceCursor:
    """Position of what was read; equal cursors mean that nothing new was stored.

    Attributes:
        attempt: The attempt that was read, None before the first step.
        recorded_steps: Steps of all ranks; in the live profile rows that were read.
        latest_step: Greatest step number of any rank.
        last_end_ns: Latest end of a step, Unix time in ns.
    """

    attempt: int | None = None
    recorded_steps: int = 0
    latest_step: int = 0
    last_end_ns: int = 0


@dataclass(frozen=True, slots=True)
class StepTimeRepositorySnapshot:
    """Normalized source facts of one moment.

    Attributes:
        rows: Rows, one for each rank and step.
        global_ranks: Every rank that ever reported or that the world size promises, ascending.
        identities: Where each reporting rank ran.
        cursor: Position of the read.
        training_strategy: `single`, `ddp`, `fsdp`, … or None when not known.
        progress: How far each reporting rank has come.
        dropped: What the producers reported as lost, by kind.
        attempts: Number of attempts in the store; only the latest is read.
        local_world_size: Ranks of the fullest node; None when not known, and in the live profile.
        first_step: The step from which on rows were read.
        store_cursor: The store's own cursor, after which a later reading goes on.
        store_position: Its part that matters here, by which a reading without news is known before it is made.
    """

    rows: Sequence[StepTimeSourceRow] = ()
    global_ranks: tuple[int, ...] = ()
    identities: Mapping[int, RankIdentity] = field(default_factory=dict)
    cursor: StepTimeSourceCursor = StepTimeSourceCursor()
    training_strategy: str | None = None
    progress: Mapping[int, RankProgress] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    attempts: int = 0
    local_world_size: int | None = None
    first_step: int = 0
    store_cursor: tuple[tuple[str, str, str], ...] = ()
    store_position: Hashable = ()
