import pytest
from tests.support import perfetto
from tests.support.rows import MS, row
from tests.support.stored import run_of_spans, span_row

from stepmeter.report.trace import Selection, write_trace
from stepmeter.store.schema import GPU_SAMPLES, LOGS, STEPS
from stepmeter.store.segments import write_segment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(perfetto.missing() is not None, reason=f"no {perfetto.missing()}")]

SLICES = """
SELECT process.name, thread.name, slice.name, slice.ts, slice.dur, slice.depth
FROM slice JOIN thread_track ON slice.track_id = thread_track.id JOIN thread USING (utid) JOIN process USING (upid)
ORDER BY slice.ts, slice.depth, thread.name
"""
COUNTERS = """
SELECT process.name, track.name, counter.value
FROM counter JOIN process_counter_track AS track ON counter.track_id = track.id JOIN process USING (upid)
"""
ARGUMENTS = "SELECT key, display_value FROM slice JOIN args USING (arg_set_id) WHERE slice.name = 'forward/attn'"
ERRORS = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two ranks, a stream, overlapping spans, a step with its device, a counter and an alert."""
    folder = tmp_path_factory.mktemp("perfetto")
    odd = {"text": 'a "b"\n', "far": "NaN", "list": [1, {"x": True}]}
    run = run_of_spans(
        folder / "runs",
        [
            span_row(1, "forward", 10, 30, step=4),
            span_row(2, "attn", 12, 20, path="forward/attn", step=4, parent_span_id=f"{1:016x}", attributes=odd),
            span_row(3, "task", 11, 31),
            span_row(4, "read", 5, 8, rank=1, thread=(7, "loader"), attributes={"stepmeter.stream": "data"}),
            span_row(5, "größer", 40, 40),
        ],
    )
    step = {"run_id": "run-1", "attempt": 0, "rank": 0, "world_size": 1, "step": 1, "traced_cpu_ns": 1}
    step |= {"start_ns": 50 * MS, "end_ns": 60 * MS, "trace_id": "0" * 31 + "1", "span_id": "f" * 16}
    step |= {"device_start_ns": 52 * MS, "device_end_ns": 59 * MS, "attributes": "{}"}
    write_segment(run, STEPS, [row(STEPS, **step)], "test", 1)
    sample = {"run_id": "run-1", "hw_id": "GPU-1", "rank": 0, "t_hi_ns": 55 * MS, "power_mw": 300_000}
    write_segment(run, GPU_SAMPLES, [row(GPU_SAMPLES, **sample)], "test", 1)
    alert = {"run_id": "run-1", "time_ns": 56 * MS, "severity_text": "ERROR", "body": "slow", "rank": 0, "step": 1}
    alert |= {"event_name": "stepmeter.alert", "attributes": "{}"}
    write_segment(run, LOGS, [row(LOGS, **alert)], "test", 1)
    return run


def test_perfetto_reads_every_event(run, tmp_path):
    """Its trace processor finds no fault, and has each span on its process and thread, at its time and depth."""
    write_trace(run, tmp_path / "t.json", Selection())
    with perfetto.opened(tmp_path / "t.json") as viewer:
        assert viewer.query(ERRORS) == []
        assert viewer.query(SLICES) == [
            ["rank 1 · data", "loader", "read", 0, 3 * MS, 0],
            ["rank 0", "main", "forward", 5 * MS, 20 * MS, 0],
            ["rank 0", "main (2)", "task", 6 * MS, 20 * MS, 0],
            ["rank 0", "main", "forward/attn", 7 * MS, 8 * MS, 1],
            ["rank 0", "main", "größer", 35 * MS, 0, 0],
            ["rank 0", "steps", "step 1", 45 * MS, 10 * MS, 0],
            ["rank 0", "device work", "step 1", 47 * MS, 7 * MS, 0],
        ]
        assert viewer.query(COUNTERS) == [["GPU-1", "power W", 300]]
        arguments = dict(viewer.query(ARGUMENTS))
        assert (arguments["args.text"], arguments["args.far"]) == ('a "b"\n', "NaN")
        assert (arguments["args.step"], arguments["args.list[1].x"]) == ("4", "true")
        assert viewer.query("SELECT ts FROM slice WHERE name = 'error: slow'") == [[51 * MS]]
        viewer.picture(tmp_path / "picture.png", 0, 60)
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_a_profile_stands_in_the_spans_that_it_was_taken_in(tmp_path):
    """The operators of a real torch.profiler trace lie inside the span around them, on Perfetto's own clock."""
    import time

    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        start_ns = time.time_ns()
        for _ in range(3):
            torch.ones(32, 32) @ torch.ones(32, 32)
        end_ns = time.time_ns()
    profile.export_chrome_trace(str(tmp_path / "kineto.json"))
    run = run_of_spans(tmp_path / "runs", [span_row(1, "around", start_ns / MS, end_ns / MS)])
    write_trace(run, tmp_path / "t.json", Selection(), merge=tmp_path / "kineto.json")

    inside = """
    SELECT count(*) FROM slice AS a JOIN slice AS b ON a.ts >= b.ts - 1e6 AND a.ts + a.dur <= b.ts + b.dur + 1e6
    WHERE a.name = 'aten::matmul' AND b.name = 'around'
    """
    with perfetto.opened(tmp_path / "t.json") as viewer:
        assert viewer.query(ERRORS) == []
        assert viewer.query(inside) == [[3]]
