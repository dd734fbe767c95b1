"""Tests of `stepmeter collect` as people run it: a process of its own, official exporters, signals, crashes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import duckdb
import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.support.otlp import collect_command, collector_process, post, run_resource, step_span, traces, wait_until

from stepmeter.store.reader import find_run, open_run

COUNT_STEPS = (
    "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True); "
    "print(*c.execute('SELECT count(*), count(DISTINCT step) FROM steps').fetchone())"
)


def rows(directory, sql, run="run-1"):
    """What a run holds."""
    with open_run(find_run(run, directory)) as reader:
        return reader.snapshot().rows(sql)


def exporters(running, protocol):
    """The official exporters for one collector."""
    if protocol == "grpc":
        options = {"endpoint": running.grpc, "insecure": True}
        return GrpcSpanExporter(**options), GrpcMetricExporter(**options)
    base = f"http://{running.http}/v1"
    return HttpSpanExporter(endpoint=f"{base}/traces"), HttpMetricExporter(endpoint=f"{base}/metrics")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_official_exporters_reach_the_store(tmp_path, protocol):
    """Spans and metrics of the OpenTelemetry SDK, sent by its own exporters, are rows after SIGTERM."""
    with collector_process(tmp_path) as running:
        assert running.run_dir is None
        to_spans, to_metrics = exporters(running, protocol)
        resource = Resource(run_resource(**{"stepmeter.run.name": "demo"}))
        tracers = TracerProvider(resource=resource)
        tracers.add_span_processor(SimpleSpanProcessor(to_spans))
        meters = MeterProvider([PeriodicExportingMetricReader(to_metrics, 3_600_000)], resource=resource)
        meter = meters.get_meter("test")
        with tracers.get_tracer("stepmeter").start_as_current_span("step", attributes={"stepmeter.step": 1}):
            tracers.get_tracer("user").start_span("inner", attributes={"a": 1.5}).end()
        meter.create_counter("steps").add(3, {"rank": 0})
        meter.create_histogram("duration", "s").record(0.5)
        tracers.shutdown()
        meters.shutdown()
        code, stderr = running.stop()
    assert code == 0
    assert "SIGTERM: draining" in stderr
    assert rows(tmp_path, "SELECT step, world_size FROM steps") == [(1, 1)]
    assert rows(tmp_path, "SELECT i.name, i.attributes FROM spans i JOIN steps s ON i.parent_span_id = s.span_id") == [
        ("inner", '{"a":1.5}')
    ]
    assert rows(tmp_path, "SELECT metric, value, rank, temporality FROM metrics") == [("steps", 3.0, 0, "cumulative")]
    assert rows(tmp_path, "SELECT metric, unit, count, sum FROM histograms") == [("duration", "s", 1, 0.5)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(tmp_path, number):
    """What was acknowledged just before a signal is in segments, and the exit code is 0."""
    with collector_process(tmp_path, "--run", "run-1", "--run-name", "demo") as running:
        assert running.run_dir == tmp_path / "demo"
        for step in range(1, 21):
            assert post(running.http, traces(step_span(step)).SerializeToString()).status == 200
        code, _ = running.stop(number)
    assert code == 0
    assert rows(tmp_path, "SELECT count(*) FROM steps") == [(20,)]


def test_the_end_of_stdin_drains(tmp_path):
    """A collector whose parent is gone ends by itself, with everything in the store."""
    with collector_process(tmp_path, "--until-stdin-closes") as running:
        post(running.http, traces(step_span(1)).SerializeToString())
        running.process.communicate(timeout=30)  # closes its standard input
        assert running.process.returncode == 0
    assert rows(tmp_path, "SELECT step FROM steps") == [(1,)]


def test_another_process_reads_while_the_run_is_written(tmp_path):
    """A plain DuckDB client in another process opens run.duckdb read-only and sees the steps arrive."""
    with collector_process(tmp_path, "--run", "run-1") as running:
        catalog = running.run_dir / "run.duckdb"
        wait_until(catalog.exists)
        with duckdb.connect(str(catalog), read_only=True) as held_open:
            for step in (1, 2):
                post(running.http, traces(step_span(step)).SerializeToString())
                wait_until(lambda: held_open.execute("SELECT count(*) FROM steps").fetchone() == (step,))  # noqa: B023
                command = [sys.executable, "-c", COUNT_STEPS, str(catalog)]
                found = subprocess.run(command, capture_output=True, text=True, check=True)
                assert found.stdout == f"{step} {step}\n"


def test_a_killed_collector_loses_and_doubles_nothing(tmp_path):
    """Killed under load and started again, five times: every acknowledged step is there, and once."""
    acknowledged: list[int] = []
    for life in range(5):
        with collector_process(tmp_path, "--run", "run-1") as running:
            sender = threading.Thread(target=send_until_refused, args=(running.http, life * 10_000, acknowledged))
            sender.start()
            already = len(acknowledged)
            wait_until(lambda: len(acknowledged) >= already + 30)  # noqa: B023 - called before the next life
            running.stop(signal.SIGKILL)
            sender.join(30)
    with collector_process(tmp_path, "--run", "run-1") as running:
        for step in acknowledged[-20:]:
            post(running.http, traces(step_span(step)).SerializeToString())
        assert running.stop()[0] == 0
    stored = [step for (step,) in rows(tmp_path, "SELECT step FROM raw.steps")]
    assert set(acknowledged) <= set(stored)
    assert [step for (step,) in rows(tmp_path, "SELECT step FROM steps ORDER BY step")] == sorted(set(stored))
    assert sorted(path.name for path in (tmp_path / ".collector").iterdir())[1:] == []


def send_until_refused(address, first, acknowledged):
    """Send one step after another, and note each that was acknowledged."""
    step = first
    while True:
        step += 1
        try:
            answer = post(address, traces(step_span(step)).SerializeToString())
        except OSError:
            return
        if answer.status == 200:
            acknowledged.append(step)


def test_two_collectors_share_a_directory_and_a_run(tmp_path):
    """Two collectors at once write the same run, each its own segments, and a reader sees both."""
    with collector_process(tmp_path, "--run", "run-1") as one, collector_process(tmp_path, "--run", "run-1") as two:
        assert one.run_dir == two.run_dir
        post(one.http, traces(step_span(1)).SerializeToString())
        post(two.http, traces(step_span(2)).SerializeToString())
        assert (one.stop()[0], two.stop()[0]) == (0, 0)
    assert rows(tmp_path, "SELECT step FROM steps ORDER BY step") == [(1,), (2,)]
    assert rows(tmp_path, "SELECT count(*) FROM meta WHERE key = 'collector'") == [(2,)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grpc", "nonsense"], 'address "nonsense"; expected host:port'),
        (["--grpc", "0.0.0.0:4317"], "can be reached from other machines"),
        (["--run-name", "x"], "--run-name without --run"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: can't be read"),
        (["--dir", "/proc/nowhere"], "can't write to /proc/nowhere"),
        (["--dir", __file__], "can't write to"),
    ],
)
def test_what_keeps_it_from_starting_is_one_line_and_code_2(tmp_path, arguments, message):
    """A collector that can't start says why in one line on stderr and ends with code 2."""
    done = subprocess.run(
        collect_command(tmp_path, *arguments), capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_permission_is_one_line(tmp_path):
    """A directory that may not be written is one line and code 2."""
    tmp_path.chmod(0o555)
    done = subprocess.run(collect_command(tmp_path), capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "Permission denied" in done.stderr


def test_a_collector_ended_as_soon_as_it_is_announced_ends_well(tmp_path):
    """SIGTERM before the collector has loaded what it stores with is a wish like any other: it ends with code 0."""
    for _ in range(3):
        with collector_process(tmp_path, "--run", "run-1") as running:
            assert running.stop()[0] == 0


def test_what_is_sent_before_the_collector_has_started_is_served(tmp_path):
    """A request sent on the very announcement of the address is answered once the collector runs, and kept."""
    with collector_process(tmp_path, "--run", "run-1") as running:
        assert post(running.http, traces(step_span(1)).SerializeToString()).status == 200
        assert running.stop()[0] == 0
    assert rows(tmp_path, "SELECT step FROM steps") == [(1,)]
