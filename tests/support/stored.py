"""Small stored runs: rows of `log()` and spans, in round numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.rows import MS, row

from stepmeter.store.schema import ROWS, SPANS
from stepmeter.store.segments import create_run, write_segment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def run_of_rows(directory: Path, values: Sequence[dict[str, Any]], *, stream: str | None = None) -> Path:
    """A run whose row n has the n-th values, one a second."""
    run = create_run(directory, "run-1", "demo")
    rows = [
        row(
            ROWS,
            run_id="run-1",
            attempt=0,
            step=step,
            stream=stream,
            rank=0,
            time_ns=step * 1000 * MS,
            values=json.dumps(each),
            resource_id="r",
        )
        for step, each in enumerate(values)
    ]
    write_segment(run, ROWS, rows, "test", 1)
    return run


def span_row(number: int, name: str, start_ms: float, end_ms: float, **values: Any) -> tuple[Any, ...]:
    """A user span of thread `main` of rank 0; its path is its name unless `path` says else."""
    path, thread, more = values.pop("path", name), values.pop("thread", (1, "main")), values.pop("attributes", {})
    facts = {
        "run_id": "run-1",
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "name": name,
        "scope_name": "stepmeter",
        "start_ns": round(start_ms * MS),
        "end_ns": round(end_ms * MS),
        "rank": 0,
        "status_code": "Unset",
        "resource_id": "r",
        "attributes": json.dumps(
            {"stepmeter.span.path": path, "thread.id": thread[0], "thread.name": thread[1], **more}
        ),
    }
    return row(SPANS, **{**facts, **values})


def run_of_spans(directory: Path, rows: Sequence[tuple[Any, ...]]) -> Path:
    """A run of these spans."""
    run = create_run(directory, "run-1", "demo")
    write_segment(run, SPANS, rows, "test", 1)
    return run
