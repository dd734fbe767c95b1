"""The eleven scenarios that every surface must agree on, with their outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.step_time import RunBuilder

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Scenario:
    """A run and what must be found in it: kind, severity, score and ranks of each issue in order."""

    name: str
    build: Callable[[], RunBuilder]
    issues: tuple[tuple[str, str, float | None, tuple[int, ...]], ...]
    steps: tuple[int, int, int]
    clock: str = "cpu"
    primary: str = "NO_CLEAR_PERFORMANCE_BOTTLENECK"


def _two(first: int, last: int, **phases: float | None) -> RunBuilder:
    numbers = range(first, last + 1)
    return RunBuilder().rank(0, numbers, **phases).rank(1, numbers, **phases)


def _complete_gpu() -> RunBuilder:
    return RunBuilder(gpu=True).rank(0, range(10, 14)).rank(1, range(10, 14))


def _sparse_missing_forward() -> RunBuilder:
    return RunBuilder().rank(0, range(20, 24)).rank(1, range(20, 24), forward=None)


def _measured_zero_forward() -> RunBuilder:
    return RunBuilder().rank(0, range(30, 34)).rank(1, range(30, 34), forward=0.0)


def _single_rank_cpu() -> RunBuilder:
    return RunBuilder().rank(0, range(40, 44))


def _late(builder: RunBuilder, numbers: range) -> RunBuilder:
    return builder.rank(0, numbers, input_wait=100.0, h2d=0.0, forward=20.0, backward=20.0, optimizer=0.0, traced=40.0)


def _ddp_rank_straggler() -> RunBuilder:
    numbers = range(50, 74)
    return _late(RunBuilder(), numbers).rank(
        1, numbers, input_wait=0.0, h2d=0.0, forward=20.0, backward=120.0, optimizer=0.0, traced=140.0
    )


def _fsdp_rank_straggler() -> RunBuilder:
    numbers = range(80, 104)
    return _late(RunBuilder(strategy="fsdp"), numbers).rank(
        1, numbers, input_wait=0.0, h2d=0.0, forward=80.0, backward=80.0, optimizer=0.0, traced=160.0
    )


def _jittered_ddp() -> RunBuilder:
    numbers = range(110, 134)
    return RunBuilder().rank(0, numbers, jitter=0.1).rank(1, numbers, jitter=0.1, backward=60.0)


def _rank_missing_steps() -> RunBuilder:
    there = [number for number in range(140, 164) if number not in range(150, 154)]
    return RunBuilder().rank(0, range(140, 164)).rank(1, there)


def _now_and_then(number: int, _: dict[str, float]) -> dict[str, float | None]:
    return {"optimizer": 10.0 if number % 4 == 0 else None, "h2d": 5.0 if number % 2 == 0 else None}


def _and_no_forward_at_180(number: int, values: dict[str, float]) -> dict[str, float | None]:
    return _now_and_then(number, values) | ({"forward": None} if number == 180 else {})


def _intermittent_metrics() -> RunBuilder:
    numbers = range(170, 194)
    return RunBuilder().rank(0, numbers, change=_now_and_then).rank(1, numbers, change=_and_no_forward_at_180)


def _h2d_bound_gpu() -> RunBuilder:
    numbers = range(200, 224)
    phases = {"h2d": 25.0, "forward": 15.0}
    return RunBuilder(gpu=True).rank(0, numbers, **phases).rank(1, numbers, **phases)


def _forward_missing_everywhere() -> RunBuilder:
    return _two(230, 253, forward=None)


BALANCED = (("BALANCED", "info", None, (0,)),)

SCENARIOS = (
    Scenario("complete_gpu", _complete_gpu, BALANCED, (10, 13, 4), clock="gpu"),
    Scenario("sparse_missing_forward", _sparse_missing_forward, BALANCED, (20, 23, 4)),
    Scenario(
        "measured_zero_forward",
        _measured_zero_forward,
        (("RESIDUAL_HEAVY", "warn", 0.20, (0,)),),
        (30, 33, 4),
        primary="RESIDUAL_HEAVY",
    ),
    Scenario("single_rank_cpu", _single_rank_cpu, (("BALANCED", "info", None, ()),), (40, 43, 4)),
    Scenario(
        "ddp_rank_straggler",
        _ddp_rank_straggler,
        (("INPUT_STRAGGLER", "crit", 5 / 7, (0,)), ("INPUT_BOUND", "crit", 5 / 14, (0,))),
        (50, 73, 24),
        primary="INPUT_STRAGGLER",
    ),
    Scenario(
        "fsdp_rank_straggler",
        _fsdp_rank_straggler,
        (("INPUT_STRAGGLER", "warn", 0.75, (0,)), ("INPUT_BOUND", "warn", 5 / 14, (0,))),
        (80, 103, 24),
        primary="INPUT_STRAGGLER",
    ),
    Scenario(
        "jittered_ddp",
        _jittered_ddp,
        (("STRAGGLER", "warn", 0.15157, (0,)), ("COMPUTE_BOUND", "info", None, (1,))),
        (110, 133, 24),
        primary="STRAGGLER",
    ),
    Scenario("rank_missing_steps", _rank_missing_steps, BALANCED, (140, 163, 20)),
    Scenario(
        "intermittent_metrics",
        _intermittent_metrics,
        (("RESIDUAL_HEAVY", "warn", 0.15, (0,)),),
        (170, 193, 24),
        primary="RESIDUAL_HEAVY",
    ),
    Scenario(
        "h2d_bound_gpu",
        _h2d_bound_gpu,
        (("H2D_BOUND", "crit", 0.25, (0,)),),
        (200, 223, 24),
        clock="gpu",
        primary="H2D_BOUND",
    ),
    Scenario(
        "forward_missing_everywhere",
        _forward_missing_everywhere,
        (("INCOMPLETE_DATA", "info", None, (0,)),),
        (230, 253, 24),
        primary="INSUFFICIENT_STEP_TIME_DATA",
    ),
)
