"""Rows for the store, by the names of their columns."""

from __future__ import annotations

from typing import Any

from stepmeter.store.schema import STEPS, Table

MS = 1_000_000


def row(table: Table, **values: Any) -> tuple[Any, ...]:
    """A row of a table; columns that are not named are null."""
    unknown = values.keys() - set(table.column_names)
    assert not unknown, f"{table.name} has no {unknown}"
    return tuple(values.get(name) for name in table.column_names)


def step_row(step: int, *, rank: int = 0, attempt: int = 0, **values: Any) -> tuple[Any, ...]:
    """A step of 10 ms: 2 ms input wait, 3 ms forward, 5 ms backward; step n starts at n * 10 ms."""
    facts: dict[str, Any] = {
        "run_id": "run-1",
        "attempt": attempt,
        "rank": rank,
        "world_size": 1,
        "step": step,
        "start_ns": step * 10 * MS,
        "end_ns": (step + 1) * 10 * MS,
        "traced_cpu_ns": 8 * MS,
        "input_wait_cpu_ns": 2 * MS,
        "input_wait_count": 1,
        "forward_cpu_ns": 3 * MS,
        "forward_count": 1,
        "backward_cpu_ns": 5 * MS,
        "backward_count": 1,
        "microbatches": 1,
        "warmup": False,
        "trace_id": f"{step:032x}",
        "span_id": f"{rank + 1:016x}",
    }
    return row(STEPS, **{**facts, **values})
