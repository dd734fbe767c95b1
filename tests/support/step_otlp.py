"""A built run sent as its program would: OTLP requests through the processor into a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.otlp import run_resource, span, traces
from tests.support.step_time import wait_fact

from stepmeter.collector.decode import RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import TRACES, Encoding
from stepmeter.store.reader import find_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.step_time import RunBuilder, Step

BATCH = 10
"""Spans of a request; the processor must not care where they are cut."""


def send(builder: RunBuilder, directory: Path, run_id: str, batch: int = BATCH) -> Path:
    """Send a run, batch by batch, and give its directory once it is stored."""
    processor = DuckdbProcessor(directory, RunKey(run_id, run_id), Health(), 3600.0)
    try:
        for rank in builder.ranks:
            of_rank = [step for step in builder.steps if step.rank == rank]
            resource = run_resource(run_id, **{"host.name": "worker-0", "stepmeter.run.name": run_id})
            for first in range(0, len(of_rank), batch):
                spans = [_span(builder, step) for step in of_rank[first : first + batch]]
                request = traces(*spans, resource=resource)
                processor.accept(Record(TRACES, Encoding.PROTOBUF, request.SerializeToString()))
    finally:
        processor.close()
    return find_run(run_id, directory)


def _span(builder: RunBuilder, step: Step):
    facts = {
        "stepmeter.step": step.step,
        "stepmeter.attempt": step.attempt,
        "stepmeter.rank": step.rank,
        "stepmeter.local_rank": step.rank,
        "stepmeter.node_rank": 0,
        "stepmeter.world_size": builder.promised,
        "stepmeter.warmup": step.warmup,
        **wait_fact(step),
    }
    if builder.strategy is not None:
        facts["stepmeter.strategy"] = builder.strategy
    if builder.gpu:
        facts["hw.id"] = f"GPU-{step.rank}"
    for clock, times in (("cpu", step.cpu_ms), ("gpu", step.gpu_ms)):
        for name, duration_ms in times.items():
            key = "stepmeter.traced" if name == "traced" else f"stepmeter.phase.{name}"
            facts[f"{key}.{clock}_ns"] = round(duration_ms * 1e6)
    built = span("step", number=step.rank * 1_000_000 + step.step, attributes=facts)
    length_ns = round((step.cpu_ms.get("input_wait", 0.0) + step.cpu_ms.get("traced", 0.0)) * 1e6)
    built.start_time_unix_nano, built.end_time_unix_nano = step.end_ns - length_ns, step.end_ns
    return built
