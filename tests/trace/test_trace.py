import json
import random

import pytest
from tests.support.rows import MS, row
from tests.support.stored import run_of_spans, span_row

from stepmeter.errors import StoreError, UsageError
from stepmeter.report.lanes import Lanes
from stepmeter.report.trace import Selection, write_trace
from stepmeter.store.schema import GPU_SAMPLES, LOGS, RESOURCES, STEPS
from stepmeter.store.segments import write_segment


def spans(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def names(trace, what):
    return {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == what}


def test_spans_keep_name_time_step_and_attributes(traced):
    """A span is one event with its path, its times in microseconds since the first, its step and its attributes."""
    parent = span_row(1, "forward", 10, 30, step=4)
    child = span_row(
        2, "attn", 12, 20, path="forward/attn", parent_span_id=f"{1:016x}", attributes={"rows": 3, "x": "NaN"}
    )
    first, second = spans(traced([child, parent]))

    assert (first["name"], first["ts"], first["dur"], first["args"]["step"]) == ("forward", 0, 20_000, 4)
    assert (second["name"], second["ts"], second["dur"]) == ("forward/attn", 2_000, 8_000)
    assert (second["args"]["rows"], second["args"]["x"]) == (3, "NaN")
    assert (first["pid"], first["tid"]) == (second["pid"], second["tid"])


def test_ranks_streams_and_threads_are_labelled(traced):
    """Each rank and stream is a process and each thread a track, with their names."""
    data = {"stepmeter.stream": "data"}
    trace = traced(
        [
            span_row(1, "a", 0, 1),
            span_row(2, "b", 0, 1, rank=1),
            span_row(3, "c", 0, 1, attributes=data, thread=(7, "loader")),
            span_row(4, "d", 5, 6, thread=(8, "loader")),
        ]
    )

    assert names(trace, "process_name") == {"rank 0", "rank 1", "rank 0 · data"}
    assert names(trace, "thread_name") == {"main", "loader"}
    assert len({(event["pid"], event["tid"]) for event in spans(trace)}) == 4


def test_what_overlaps_without_nesting_gets_a_lane(traced):
    """Concurrent tasks of one thread are on lanes of their own, which are used again when they are free."""
    trace = traced(
        [span_row(1, "a", 0, 10), span_row(2, "b", 5, 15), span_row(3, "c", 11, 12), span_row(4, "d", 20, 30)]
    )
    threads = [event["tid"] for event in spans(trace)]

    assert threads[0] == threads[2] == threads[3] != threads[1]
    assert names(trace, "thread_name") == {"main", "main (2)"}


@pytest.mark.parametrize(
    ("selected", "found"),
    [
        ({}, "abcdz"),
        ({"time_ns": (10 * MS, 20 * MS)}, "bc"),
        ({"time_ns": (None, 10 * MS)}, "ab"),
        ({"time_ns": (20 * MS, None)}, "d"),
        ({"time_ns": (20 * MS, 10 * MS)}, ""),
        ({"time_ns": (10 * MS, 10 * MS)}, ""),
        ({"steps": (2, 4)}, "bc"),
        ({"steps": (None, 2)}, "a"),
        ({"steps": (4, 2)}, ""),
        ({"steps": (2, None), "time_ns": (None, 12 * MS)}, "b"),
        ({"ranks": (1,)}, "d"),
        ({"streams": ("default",)}, "abdz"),
        ({"streams": ("data",)}, "c"),
    ],
)
def test_selections_are_half_open_and_joined_by_and(traced, selected, found):
    """Spans that overlap the time are whole, those of no length go under a time filter, empty ranges select nothing."""
    trace = traced(
        [
            span_row(1, "a", 0, 10, step=1),
            span_row(2, "b", 5, 15, step=2),
            span_row(3, "c", 15, 20, step=3, attributes={"stepmeter.stream": "data"}),
            span_row(4, "d", 20, 30, step=4, rank=1),
            span_row(5, "z", 12, 12),
        ],
        **selected,
    )

    assert "".join(sorted(event["name"] for event in spans(trace))) == found


def test_an_error_is_coloured(traced):
    """A span that failed stands out."""
    (event,) = spans(traced([span_row(1, "a", 0, 1, status_code="Error", attributes={"error.type": "ValueError"})]))

    assert event["cname"] == "terrible"
    assert event["args"]["error.type"] == "ValueError"


def test_steps_phases_device_counters_and_alerts(tmp_path):
    """Steps with their phases, what the device did, memory and power, and alerts are in the trace of their rank."""
    run = run_of_spans(
        tmp_path / "runs",
        [span_row(2, "forward", 1, 5, phase="forward", step=1, parent_span_id=f"{1:016x}", attributes={})],
    )
    step = {"run_id": "run-1", "attempt": 0, "rank": 0, "world_size": 1, "step": 1, "traced_cpu_ns": 1}
    step |= {"start_ns": 0, "end_ns": 10 * MS, "trace_id": "0" * 31 + "1", "span_id": f"{1:016x}", "attributes": "{}"}
    step |= {"device_start_ns": 2 * MS, "device_end_ns": 9 * MS, "peak_allocated_bytes": 3 << 20, "warmup": True}
    write_segment(run, STEPS, [row(STEPS, **step)], "test", 1)
    sample = {"run_id": "run-1", "hw_id": "GPU-1", "rank": 0, "t_hi_ns": 4 * MS, "power_mw": 300_000}
    write_segment(run, GPU_SAMPLES, [row(GPU_SAMPLES, **sample)], "test", 1)
    alert = {"run_id": "run-1", "time_ns": 5 * MS, "severity_text": "ERROR", "body": "slow", "rank": 0, "step": 1}
    alert |= {"event_name": "stepmeter.alert", "attributes": "{}"}
    write_segment(run, LOGS, [row(LOGS, **alert)], "test", 1)
    write_trace(run, tmp_path / "t.json", Selection())
    trace = json.loads((tmp_path / "t.json").read_text())

    assert [(event["name"], event["ts"], event["dur"]) for event in spans(trace)] == [
        ("step 1", 0, 10_000),
        ("forward", 1_000, 4_000),
        ("step 1", 2_000, 7_000),
    ]
    counters = {event["name"]: event["args"] for event in trace["traceEvents"] if event["ph"] == "C"}
    assert counters == {"power": {"W": 300}, "step peak allocated": {"MiB": 3}}
    (instant,) = [event for event in trace["traceEvents"] if event["ph"] == "i"]
    assert (instant["name"], instant["ts"]) == ("error: slow", 5_000)
    assert "GPU-1" in names(trace, "process_name")


def test_processes_of_one_boot_share_one_clock(tmp_path):
    """A process whose wall clock was an hour off is laid beside the others by the monotonic clock of their boot."""
    hour = 3600 * 1000
    run = run_of_spans(
        tmp_path / "runs",
        [span_row(1, "a", 10, 20), span_row(2, "b", 10 + hour, 20 + hour, rank=1, resource_id="late")],
    )
    anchors = {"run_id": "run-1", "clock_boot_id": "boot", "attributes": "{}"}
    write_segment(
        run,
        RESOURCES,
        [
            row(RESOURCES, **anchors, resource_id="r", clock_anchor_unix_ns=1000 * MS, clock_anchor_monotonic_ns=0),
            row(
                RESOURCES,
                **anchors,
                resource_id="late",
                clock_anchor_unix_ns=(1001 + hour) * MS,
                clock_anchor_monotonic_ns=MS,
            ),
        ],
        "test",
        1,
    )
    write_trace(run, tmp_path / "t.json", Selection())

    assert [event["ts"] for event in spans(json.loads((tmp_path / "t.json").read_text()))] == [0, 0]


def test_a_profile_is_laid_on_the_same_clock(tmp_path):
    """A real torch.profiler trace is moved to the trace's zero, and its processes keep apart from ours."""
    import time

    import torch

    run_dir = tmp_path / "runs"
    start_ns = time.time_ns()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(3):
            torch.ones(32, 32) @ torch.ones(32, 32)
    end_ns = time.time_ns()
    profile.export_chrome_trace(str(tmp_path / "kineto.json"))
    run = run_of_spans(run_dir, [span_row(1, "around", start_ns / MS, end_ns / MS)])
    write_trace(run, tmp_path / "t.json", Selection(), merge=tmp_path / "kineto.json")
    trace = json.loads((tmp_path / "t.json").read_text())

    (ours,) = [event for event in spans(trace) if event["name"] == "around"]
    products = [event for event in spans(trace) if event["name"] == "aten::matmul"]
    assert len(products) == 3
    assert all(ours["ts"] - 1000 <= event["ts"] <= ours["ts"] + ours["dur"] + 1000 for event in products)
    assert ours["pid"] not in {event["pid"] for event in products}


def test_the_old_file_stays_when_writing_fails(tmp_path, monkeypatch):
    """A failure leaves the file that was there, and nothing beside it."""
    run = run_of_spans(tmp_path / "runs", [span_row(1, "a", 0, 1)])
    output = tmp_path / "out" / "t.json"
    output.parent.mkdir()
    output.write_text("old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stepmeter.report.trace._write", fail)
    with pytest.raises(StoreError, match="No space left"):
        write_trace(run, output, Selection())

    assert [path.name for path in output.parent.iterdir()] == ["t.json"]
    assert output.read_text() == "old"


@pytest.mark.parametrize("content", ["", "[]", '{"x": 1}'])
def test_a_merge_of_something_else_is_refused(tmp_path, content):
    """What is no profile is one line."""
    run = run_of_spans(tmp_path / "runs", [span_row(1, "a", 0, 1)])
    (tmp_path / "x.json").write_text(content)

    with pytest.raises(UsageError, match=r"torch\.profiler"):
        write_trace(run, tmp_path / "t.json", Selection(), merge=tmp_path / "x.json")


def test_lanes_hold_proper_stacks_and_forget_what_is_over():
    """For 3,000 random spans every lane nests properly, and memory is that of what overlaps."""
    numbers = random.Random(1)
    made = sorted(
        (start, -(start + numbers.randrange(1, 40))) for start in (numbers.randrange(0, 30_000) for _ in range(3000))
    )
    lanes, placed, most = Lanes(), {}, 0
    for index, (start, negative_end) in enumerate(made):
        lane = lanes.place(str(index), str(index - 1) if index % 3 else None, start, -negative_end)
        placed.setdefault(lane, []).append((start, -negative_end))
        most = max(most, lanes.open_spans)
    for of_lane in placed.values():
        stack = []
        for start, end in of_lane:
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1]
            stack.append(end)

    assert most < 200


def test_sequential_spans_keep_one_lane():
    """100,000 spans one after another need one lane and hold one span."""
    lanes = Lanes()
    for number in range(100_000):
        lanes.place(str(number), None, number * 2, number * 2 + 1)

    assert (len(lanes), lanes.open_spans) == (1, 1)
