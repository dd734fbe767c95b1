"""traceml-ai 0.5.0 on the numbers of `benchmarks/analysis.py`: its tables, its live session, its summary pipeline."""

from __future__ import annotations

import json
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from pathlib import Path

from traceml_ai.aggregator.sqlite_writers.step_time import init_schema
from traceml_ai.step_time.model import STEP_TIME_EVENT_NAMES
from traceml_ai.step_time.pipeline import LiveStepTimeSession, StepTimePipeline
from traceml_ai.step_time.sqlite import SQLiteStepTimeRepository, StepTimeLoadRequest

RANKS, ROUNDS, NEW_STEPS = 8, 9, 10
BASE = {
    "input_wait": 5.0,
    "h2d": 5.0,
    "forward": 30.0,
    "backward": 45.0,
    "optimizer_step": 10.0,
    "traced_step_time": 95.0,
}
COLUMNS = (
    "recv_ts_ns, rank, global_rank, local_rank, world_size, node_rank, hostname, sample_ts_s, seq, step, events_json"
)


def rows(first, last, noise):
    """Rows of steps, as its writer stores them."""
    for step in range(first, last + 1):
        for rank in range(RANKS):
            events = {
                STEP_TIME_EVENT_NAMES[name]: {
                    "cpu": {
                        "is_gpu": False,
                        "duration_ms": (value := BASE[name] + noise.random()),
                        "cpu_ms": value,
                        "gpu_ms": None,
                        "n_calls": 1,
                    }
                }
                for name in BASE
            }
            yield (step, rank, rank, rank, RANKS, 0, "worker-0", float(step), step, step, json.dumps(events))


def add(connection, first, last, noise):
    marks = ", ".join("?" * len(COLUMNS.split(",")))
    connection.executemany(
        f"INSERT INTO step_time_samples({COLUMNS}) VALUES ({marks})",  # noqa: S608 - constants
        rows(first, last, noise),
    )
    connection.commit()


def main():
    """Print the median of a refresh in ms, CPU of it, and a summary in s."""
    n_steps, noise = int(sys.argv[1]), random.Random(7)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "telemetry"
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode=WAL")
        init_schema(connection)
        add(connection, 1, n_steps, noise)
        session, times, cpu = LiveStepTimeSession(str(path)), [], []
        session.refresh()
        for _ in range(ROUNDS):
            add(connection, n_steps + 1, n_steps + NEW_STEPS, noise)
            n_steps += NEW_STEPS
            began, began_cpu = time.perf_counter(), time.thread_time()
            result = session.refresh()
            times.append((time.perf_counter() - began) * 1e3)
            cpu.append((time.thread_time() - began_cpu) * 1e3)
            assert result.analysis.window.steps[-1] == n_steps
        began = time.perf_counter()
        connection.row_factory = sqlite3.Row
        pipeline = StepTimePipeline(repository=SQLiteStepTimeRepository(connection), profile="summary")
        pipeline.run(StepTimeLoadRequest())
        print(json.dumps([statistics.median(times), statistics.median(cpu), time.perf_counter() - began]))


if __name__ == "__main__":
    main()
