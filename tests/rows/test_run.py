import json
import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import stepmeter
from stepmeter.errors import UsageError


def lines(directory, name="default.rank0"):
    """The OTLP-JSON requests of one writer."""
    text = (directory / "otlp" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]


def spans_in(requests):
    found = [request["resourceSpans"] for request in requests if "resourceSpans" in request]
    return [span for part in found for each in part for scope in each["scopeSpans"] for span in scope["spans"]]


def user_spans(requests):
    return [span for span in spans_in(requests) if "stepmeter.span.path" in facts(span)]


def facts(record):
    return {pair["key"]: next(iter(pair["value"].values()), None) for pair in record["attributes"]}


def test_rows_spans_and_metrics_without_a_collector_are_lines(tmp_path):
    """Without an endpoint a run writes OTLP-JSON lines into its directory, strictly JSON, with hexadecimal ids."""
    stepmeter.init("demo", "r", span_count=True)
    with stepmeter.span("forward", rows=3):
        pass
    stepmeter.log({"loss": float("nan")})
    stepmeter.finish()

    requests = lines(tmp_path / "r")
    (span,) = user_spans(requests)
    assert (len(span["traceId"]), len(span["spanId"]), facts(span)["rows"]) == (32, 16, "3")
    (records,) = [
        request["resourceLogs"][0]["scopeLogs"][0]["logRecords"] for request in requests if "resourceLogs" in request
    ]
    values = {pair["key"]: pair["value"] for pair in facts(records[0])["stepmeter.values"]["values"]}
    assert values["loss"] == {"stringValue": "NaN"}
    assert values["count/forward"] == {"intValue": "1"}
    metrics = [
        metric["name"]
        for request in requests
        if "resourceMetrics" in request
        for metric in request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    ]
    assert {"stepmeter.span.duration", "stepmeter.nonfinite"} <= {*metrics}


def test_no_thread_is_left_after_finish():
    """`finish` ends all threads that `init` began."""
    stepmeter.init(name="r")
    with stepmeter.span("a"):
        pass
    stepmeter.finish()
    deadline = time.monotonic() + 5
    while (left := our_threads()) and time.monotonic() < deadline:
        time.sleep(0.01)

    assert left == []
    assert stepmeter.get_run() is None


def our_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("stepmeter")]


def test_history_gives_the_newest_rows_first_to_last():
    """`history` knows rows, the open one included, filtered by steps and names, with NaN as a number."""
    stepmeter.init(name="r")
    for step in range(5):
        stepmeter.log({"loss": step, **({"eval": step} if step % 2 else {})})
    stepmeter.log({"loss": math.nan}, step=5)

    assert [row["_step"] for row in stepmeter.history(2)] == [4, 5]
    assert [row["_step"] for row in stepmeter.history(-1, step_range=(1, 3))] == [1, 2]
    assert [row["eval"] for row in stepmeter.history(metrics=["eval"])] == [1, 3]
    assert len(stepmeter.history(include_open=False)) == 5
    assert math.isnan(stepmeter.history(1)[0]["loss"])
    assert stepmeter.summary()["loss"] == 4


def test_flush_sends_spans_without_committing_the_row(tmp_path):
    """`get_run().history.flush()` waits until completed spans are written; the row stays open."""
    run = stepmeter.init(name="r", max_buffer_seconds=None)
    with stepmeter.span("work"):
        pass
    assert run.history.flush()

    assert len(user_spans(lines(tmp_path / "r"))) == 1
    assert stepmeter.history(include_open=False) == []


def test_spans_reach_the_file_by_themselves(tmp_path):
    """With `max_buffer_seconds` a completed span is written with no further call."""
    stepmeter.init(name="r", max_buffer_seconds=0.02)
    with stepmeter.span("work"):
        pass
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if (tmp_path / "r" / "otlp").exists() and user_spans(lines(tmp_path / "r")):
            break
        time.sleep(0.02)

    assert user_spans(lines(tmp_path / "r"))


def test_without_spans_only_durations_are_kept(tmp_path):
    """`spans=False` writes no span and keeps its time in the row."""
    stepmeter.init(name="r", spans=False)
    with stepmeter.span("work"):
        pass
    stepmeter.log({})
    assert "time_ms/work" in stepmeter.history()[0]
    stepmeter.finish()

    assert user_spans(lines(tmp_path / "r")) == []


def test_a_process_that_only_records_spans_commits_one_row():
    """Without `log` every span is at step 0, and `finish` commits their sum."""
    run = stepmeter.init(name="r", span_count=True)
    for _ in range(3):
        with stepmeter.span("work"):
            pass
    stepmeter.finish()

    ((step, values),) = [(row.step, row.values) for row in run.book.rows()]
    assert (step, values["count/work"]) == (0, 3)


def test_a_resumed_run_goes_on_one_past_its_highest_step(tmp_path):
    """A second start of a run is a new attempt with the same id, and starts after the last row."""
    first = stepmeter.init(name="r")
    for _ in range(6):
        stepmeter.log({"loss": 1})
    stepmeter.finish()
    second = stepmeter.init(name="r")

    assert (second.id, second.attempt, second.book.step) == (first.id, 1, 6)
    stepmeter.log({"loss": 2}, step=3, commit=True)
    stepmeter.finish()
    from stepmeter.runtime.row_lines import read_rows

    found = read_rows(tmp_path / "r", None)
    assert [(row.step, row.values["loss"]) for row in found] == [(0, 1), (1, 1), (2, 1), (3, 2), (4, 1), (5, 1)]


def test_resume_can_be_asked_for_or_refused():
    """`must` wants a run to be there, `never` wants none, and other words are refused."""
    with pytest.raises(UsageError, match="no run to resume"):
        stepmeter.init(name="r", resume="must")
    stepmeter.init(name="r")
    stepmeter.finish()
    with pytest.raises(UsageError, match="has this run already"):
        stepmeter.init(name="r", resume="never")
    with pytest.raises(UsageError, match="expected one of"):
        stepmeter.init(name="r", resume="maybe")


def test_one_run_a_process_and_one_process_a_stream(tmp_path):
    """A second `init` without `finish` is refused, and so is a stream that another process writes."""
    stepmeter.init(name="r")
    with pytest.raises(UsageError, match="is open in this process"):
        stepmeter.init(name="s")
    code = f"import stepmeter; stepmeter.init(name='r', dir={str(tmp_path)!r})"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("STEPMETER_RUN")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)

    assert "written by another process" in done.stderr


@pytest.mark.parametrize("stream", ["a/b", "", "-x"])
def test_a_stream_needs_a_name(stream):
    """A stream that can't name a file is refused."""
    with pytest.raises(UsageError, match="is no name"):
        stepmeter.init(name="r", stream=stream)


def test_streams_have_cursors_of_their_own(tmp_path):
    """Each stream counts its own steps, writes its own file, and can be read by the others."""
    code = (
        f"import stepmeter; stepmeter.init(name='r', stream='data', dir={str(tmp_path)!r})\n"
        "for _ in range(4): stepmeter.log({'rows': 7})"
    )
    environ = {key: value for key, value in os.environ.items() if not key.startswith("STEPMETER_RUN")}
    subprocess.run([sys.executable, "-c", code], check=True, env=environ)
    run = stepmeter.init(name="r")

    assert run.book.step == 0
    assert [row["rows"] for row in stepmeter.history(stream="data")] == [7] * 4


def test_without_a_run_everything_is_harmless():
    """`log`, `history`, `summary`, `flush` and `finish` do nothing without a run."""
    stepmeter.log({"a": 1})
    stepmeter.finish()

    assert (stepmeter.history(), stepmeter.summary(), stepmeter.flush()) == ([], {}, True)


def test_a_log_of_something_strange_raises_nothing():
    """What is no mapping, has odd keys or odd values never reaches the program as an error."""
    stepmeter.init(name="r")
    stepmeter.log(3)
    stepmeter.log({1: object(), b"x": 2})

    assert set(stepmeter.history()[-1]) == {"_step", "_time", "1", "b'x'"}


PROGRAM = """
import sys, time, stepmeter
stepmeter.init(name="r", dir=sys.argv[1])
for _ in range(200):
    with stepmeter.span("work"):
        pass
unfinished = stepmeter.start_span("unfinished")
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(("how", "wait_s"), [(signal.SIGTERM, 0), (signal.SIGKILL, 1.5)])
def test_a_killed_process_loses_no_completed_span(tmp_path, how, wait_s):
    """At SIGTERM completed spans are written and the row commits; at SIGKILL spans older than a second are there."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(wait_s)
    process.send_signal(how)
    assert process.wait(20) == -how
    process.stdout.close()

    requests = lines(tmp_path / "r")
    assert len(user_spans(requests)) == 200
    assert any("resourceLogs" in request for request in requests) == (how is signal.SIGTERM)


def test_a_forked_child_has_no_run_and_may_open_its_own(tmp_path):
    """After a fork the child's rows go nowhere, its exit writes nothing of the parent's, and `init` works there."""
    stepmeter.init(name="r")
    stepmeter.log({"a": 1}, step=0)
    pid = os.fork()
    if pid == 0:
        ok = stepmeter.get_run() is None
        stepmeter.log({"a": 2})
        stepmeter.finish()
        os._exit(0 if ok else 1)
    _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert stepmeter.history()[0]["a"] == 1


def test_a_flush_waits_for_all_that_was_recorded_before_it(tmp_path):
    """5,000 spans recorded while the drain is at work are all written when `flush` returns."""
    run = stepmeter.init(name="r")
    for number in range(5000):
        with stepmeter.span("work"):
            pass
        if number % 1000 == 999:
            assert run.history.flush()
            assert len(user_spans(lines(tmp_path / "r"))) == number + 1


def test_inside_a_step_block_a_log_joins_its_row():
    """In `with step(n)` several logs and spans are one row, which commits at the end of the block."""
    stepmeter.init(name="r", span_count=True)
    for number in (3, 4):
        with stepmeter.step(number):
            with stepmeter.span("work"):
                pass
            stepmeter.log({"loss": number})
            stepmeter.log({"rate": 1})

    found = [
        (row["_step"], row["loss"], row["rate"], row["count/work"]) for row in stepmeter.history(include_open=False)
    ]
    assert found == [(3, 3, 1, 1), (4, 4, 1, 1)]


def test_what_was_dropped_is_said_at_the_end(capfd):
    """A run whose queue was full says at `finish` how many spans it lost."""
    stepmeter.init(name="r", max_record_bytes=100)
    for _ in range(3):
        with stepmeter.span("big", text="x" * 200):
            pass
    stepmeter.finish()

    assert "3 dropped (span: larger than max_record_bytes)" in capfd.readouterr().err


FORKING = """
import os, sys, stepmeter
stepmeter.init(name="r", dir=sys.argv[1])
with stepmeter.span("parent"):
    pid = os.fork()
    if pid == 0:
        stepmeter.init(name="r", dir=sys.argv[1], stream="worker")
        with stepmeter.span("child"):
            pass
        stepmeter.log({"x": 1})
        stepmeter.finish()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
stepmeter.log({"x": 2})
stepmeter.finish()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_writes_a_stream_of_its_own(tmp_path):
    """A child that calls `init` with a stream records its spans and rows there, and the parent's stay the parent's."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("STEPMETER_", "OTEL_"))}
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path)], env=environ, check=True, timeout=60)

    parent, child = user_spans(lines(tmp_path / "r")), user_spans(lines(tmp_path / "r", "worker.rank0"))
    assert [span["name"] for span in parent] == ["parent"]
    assert [facts(span)["stepmeter.stream"] for span in child] == ["worker"]


def test_history_goes_beyond_memory_into_the_lines():
    """With 4 rows in memory and 10 written, all 10 can be had, the newest of them and a range of steps."""
    run = stepmeter.init(name="r", alert_window=4)
    for number in range(10):
        stepmeter.log({"x": number, **({"rare": 1} if number == 2 else {})})
    assert run.history.flush()

    assert [row["x"] for row in stepmeter.history(-1)] == [*range(10)]
    assert [row["x"] for row in stepmeter.history(6)] == [*range(4, 10)]
    assert [row["x"] for row in stepmeter.history(-1, step_range=(1, 3))] == [1, 2]
    assert [row["_step"] for row in stepmeter.history(metrics=["rare"])] == [2]


def test_history_of_a_resumed_run_has_the_rows_of_before():
    """After a resume the rows of the earlier start are part of the history, and a step logged anew is the new one."""
    stepmeter.init(name="r")
    for number in range(3):
        stepmeter.log({"x": number})
    stepmeter.finish()
    stepmeter.init(name="r")
    stepmeter.log({"x": 7}, step=2, commit=True)

    assert [(row["_step"], row["x"]) for row in stepmeter.history()] == [(0, 0), (1, 1), (2, 7)]


def test_memory_is_enough_where_it_has_what_is_asked_for(monkeypatch):
    """The newest rows that are in memory are given without a look at any file."""
    from stepmeter.runtime import older_rows

    stepmeter.init(name="r", alert_window=4)
    for number in range(10):
        stepmeter.log({"x": number})
    monkeypatch.setattr(older_rows, "older_rows", pytest.fail)

    assert [row["x"] for row in stepmeter.history(4)] == [6, 7, 8, 9]
    assert [row["x"] for row in stepmeter.history(-1, step_range=(7, 9))] == [7, 8]


def test_where_nothing_was_kept_history_says_so(capfd, tmp_path):
    """Without lines and without a store the rows in memory are all there is, and one line says it."""
    run = stepmeter.init(name="r", alert_window=4)
    for number in range(6):
        stepmeter.log({"x": number})
    assert run.history.flush()
    for file in (tmp_path / "r" / "otlp").iterdir():
        file.unlink()

    for _ in range(2):
        assert [row["x"] for row in stepmeter.history(-1)] == [2, 3, 4, 5]
    assert capfd.readouterr().err.count("history has the newest 4 rows") == 1
