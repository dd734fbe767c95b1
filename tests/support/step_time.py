"""Steps in round numbers, as model rows and as rows of table `steps`: the same run both ways."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.support.rows import row

from stepmeter.analysis.step_time.source import (
    RankIdentity,
    RankProgress,
    StepTimeRepositorySnapshot,
    StepTimeSourceCursor,
    StepTimeSourceRow,
)
from stepmeter.store import schema, segments
from stepmeter.store.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

BASE = {"input_wait": 5.0, "h2d": 5.0, "forward": 30.0, "backward": 45.0, "optimizer": 10.0, "traced": 95.0}
"""Milliseconds of a step of 100 ms, of which 5 are residual."""

EPOCH_NS = 1_700_000_000_000_000_000
JITTER_KEYS = {"optimizer": "optimizer_step", "traced": "traced_step_time"}


@dataclass(frozen=True)
class Step:
    """One step of one rank; a phase without an entry was not measured."""

    rank: int
    step: int
    cpu_ms: Mapping[str, float]
    gpu_ms: Mapping[str, float] = field(default_factory=dict)
    end_ns: int = 0
    warmup: bool = False
    attempt: int = 0
    peaks_bytes: tuple[int | None, int | None] = (None, None)
    wait_ms: float | None = None


@dataclass
class RunBuilder:
    """Builds a run rank by rank; steps follow one another without a gap of time."""

    strategy: str | None = "ddp"
    gpu: bool = False
    world_size: int | None = None
    steps: list[Step] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    points: list[dict[str, object]] = field(default_factory=list)
    memory_limit_bytes: int | None = None
    power_limit_w: float | None = None
    local_world_size: int | None = None

    def rank(
        self,
        rank: int,
        numbers: Iterable[int],
        *,
        change: Callable[[int, dict[str, float]], dict[str, float | None]] | None = None,
        jitter: float = 0.0,
        seed: int = 7,
        attempt: int = 0,
        warmup: int = 0,
        **phases: float | None,
    ) -> RunBuilder:
        """Add steps of one rank: `BASE` with some phases changed, or absent where None."""
        end_ns = EPOCH_NS
        for position, number in enumerate(numbers):
            values: dict[str, float | None] = {**BASE, **phases}
            if change is not None:
                values |= change(number, dict(values))
            present = {
                name: value * (1 + jitter * _noise(seed, rank, number, name))
                for name, value in values.items()
                if value is not None
            }
            cpu = {name: 2 * value for name, value in present.items()} if self.gpu else present
            end_ns += round((cpu.get("input_wait", 0.0) + cpu.get("traced", 0.0)) * 1e6)
            self.steps.append(Step(rank, number, cpu, present if self.gpu else {}, end_ns, position < warmup, attempt))
        return self

    def peaks(self, rank: int, allocated: Callable[[int], int | None], reserved: Callable[[int], int | None]) -> None:
        """Give the steps of a rank their peak memory, by their number."""
        self.steps = [
            replace(step, peaks_bytes=(allocated(step.step), reserved(step.step))) if step.rank == rank else step
            for step in self.steps
        ]

    def waits(self, rank: int, found_ms: Mapping[int, float]) -> RunBuilder:
        """Give steps of a rank, by their number, what DDP measured of its wait in backward."""
        self.steps = [
            replace(step, wait_ms=found_ms.get(step.step)) if step.rank == rank else step for step in self.steps
        ]
        return self

    def read(self, metric: str, *values: float, rank: int = 0, hw_id: str | None = None, **attributes: str) -> None:
        """Add readings of a metric by a rank's process, a second apart, the first at the run's start."""
        self.points += [
            {
                "metric": metric,
                "kind": "sum" if metric.endswith(".time") else "gauge",
                "temporality": "cumulative" if metric.endswith(".time") else None,
                "time_ns": EPOCH_NS + second * 1_000_000_000,
                "rank": rank,
                "hw_id": hw_id,
                "double_value": value,
                "resource_id": f"resource-{rank}",
                "attributes": json.dumps({name.replace("_", "."): text for name, text in attributes.items()}),
            }
            for second, value in enumerate(values)
        ]

    @property
    def ranks(self) -> list[int]:
        """Ranks that have steps."""
        return sorted({step.rank for step in self.steps})

    @property
    def promised(self) -> int:
        """The world size that every step carries."""
        return self.world_size or len(self.ranks)

    def lose_gpu(self, rank: int, number: int, phase: str) -> None:
        """Take away one device time."""
        for index, step in enumerate(self.steps):
            if (step.rank, step.step) == (rank, number):
                self.steps[index] = replace(step, gpu_ms={k: v for k, v in step.gpu_ms.items() if k != phase})

    def snapshot(self) -> StepTimeRepositorySnapshot:
        """The run as the repository would give it."""
        by_rank = {rank: [step for step in self.steps if step.rank == rank] for rank in self.ranks}
        return StepTimeRepositorySnapshot(
            rows=tuple(_source_row(step) for step in self.steps),
            global_ranks=tuple(sorted({*by_rank, *range(self.promised)})),
            identities={rank: self._identity(rank) for rank in by_rank},
            cursor=StepTimeSourceCursor(0, len(self.steps)),
            training_strategy=self.strategy,
            progress={rank: _progress(steps) for rank, steps in by_rank.items()},
            dropped=self.dropped,
            attempts=1,
        )

    def write(self, directory: Path, run_id: str = "0123456789abcdef", name: str | None = "scenario") -> Path:
        """The run as a store on disk, without `run.duckdb`, which our own readers do not need."""
        run = segments.claim_run(directory, run_id, name)
        self.write_into(run, run_id, 1)
        return run

    def write_into(self, run: Path, run_id: str, number: int) -> None:
        """The run as segments of a number in a directory that is there."""
        write_steps(run, [self._table_row(step, run_id) for step in self.steps], number)
        points = [_drop_point(kind, count) for kind, count in self.dropped.items()] + self.points
        if points:
            rows = [row(schema.METRIC_POINTS, run_id=run_id, unit="", flags=0, **point) for point in points]
            segments.write_segment(run, schema.METRIC_POINTS, rows, "local-0", number)
        resources = [self._resource_row(rank, run_id) for rank in {*self.ranks, *(int(p["rank"]) for p in self.points)}]
        segments.write_segment(run, schema.RESOURCES, resources, "local-0", number)

    def _resource_row(self, rank: int, run_id: str) -> tuple[object, ...]:
        facts = {
            "stepmeter.gpu.memory.limit": self.memory_limit_bytes,
            "stepmeter.gpu.power.limit": self.power_limit_w,
            "stepmeter.local_world_size": self.local_world_size,
        }
        return row(
            schema.RESOURCES,
            run_id=run_id,
            resource_id=f"resource-{rank}",
            host="worker-0",
            node_rank=0,
            rank=rank,
            attempt=0,
            hw_id=self._hw_id(rank),
            attributes=json.dumps({name: value for name, value in facts.items() if value is not None}),
        )

    def _identity(self, rank: int) -> RankIdentity:
        return RankIdentity(rank, rank, 0, "worker-0", self.promised, self._hw_id(rank))

    def _hw_id(self, rank: int) -> str | None:
        return f"GPU-{rank}" if self.gpu else None

    def _table_row(self, step: Step, run_id: str) -> tuple[object, ...]:
        values: dict[str, object] = {
            "run_id": run_id,
            "step": step.step,
            "attempt": step.attempt,
            "rank": step.rank,
            "local_rank": step.rank,
            "node_rank": 0,
            "world_size": self.promised,
            "strategy": self.strategy,
            "warmup": step.warmup,
            "host": "worker-0",
            "hw_id": self._hw_id(step.rank),
            "start_ns": step.end_ns
            - round((step.cpu_ms.get("input_wait", 0.0) + step.cpu_ms.get("traced", 0.0)) * 1e6),
            "end_ns": step.end_ns,
            "trace_id": f"{step.attempt * 1_000_000 + step.step:032x}",
            "span_id": f"{step.rank * 1_000_000 + step.step:016x}",
            "resource_id": f"resource-{step.rank}",
            "attributes": json.dumps(wait_fact(step)),
            "peak_allocated_bytes": step.peaks_bytes[0],
            "peak_reserved_bytes": step.peaks_bytes[1],
        }
        for clock, times in (("cpu", step.cpu_ms), ("gpu", step.gpu_ms)):
            values |= {f"{name}_{clock}_ns": round(ms * 1e6) for name, ms in times.items()}
        return tuple(values.get(name) for name in schema.STEPS.column_names)


def write_steps(run: Path, rows: list[tuple[object, ...]], number: int) -> None:
    """Write a segment of steps and count it, as a collector does."""
    segments.write_segment(run, schema.STEPS, rows, "local-0", number)
    Watermark(run, "local-0").advance(number, rows)


def _noise(seed: int, rank: int, number: int, name: str) -> float:
    return random.Random(f"{seed}:{rank}:{number}:{JITTER_KEYS.get(name, name)}").uniform(-1, 1)


def _source_row(step: Step) -> StepTimeSourceRow:
    names = [name for name in BASE if name in step.cpu_ms or name in step.gpu_ms]
    pairs = {name: (step.cpu_ms.get(name), step.gpu_ms.get(name)) for name in names}
    if step.wait_ms is not None:
        pairs["backward_wait"] = (step.wait_ms, None)
    return StepTimeSourceRow(step.end_ns, step.rank, step.step, pairs, step.warmup)


def wait_fact(step: Step) -> dict[str, int]:
    """What a step span says of its wait in backward."""
    return {} if step.wait_ms is None else {"stepmeter.backward.wait_ns": round(step.wait_ms * 1e6)}


def _progress(steps: list[Step]) -> RankProgress:
    numbers = [step.step for step in steps]
    return RankProgress(len(steps), min(numbers), max(numbers), EPOCH_NS, max(step.end_ns for step in steps))


def _drop_point(kind: str, count: int) -> dict[str, object]:
    return {
        "metric": "stepmeter.dropped",
        "kind": "sum",
        "temporality": "cumulative",
        "is_monotonic": True,
        "time_ns": EPOCH_NS,
        "rank": 0,
        "int_value": count,
        "resource_id": "resource-0",
        "attributes": f'{{"kind": "{kind}"}}',
    }
