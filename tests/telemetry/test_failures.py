"""Every path of ours on the drain thread, made to raise: nothing reaches the program, and what was lost is counted."""

import time

import pytest
from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.failing import fail, path_id
from tests.telemetry.builders import ANCHOR, step

from stepmeter.capture.channel import Channel
from stepmeter.capture.identity import Identity
from stepmeter.capture.outbox import Outbox
from stepmeter.capture.reading import Reading
from stepmeter.capture.recording import SpanRecorder
from stepmeter.capture.region import Unresolved
from stepmeter.capture.step import Recorder, StepMemory
from stepmeter.telemetry import emit, outlet, pipeline
from stepmeter.telemetry.aggregate import Aggregator
from stepmeter.telemetry.budget import PhaseBudget
from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.outlet import SpanOutlet
from stepmeter.telemetry.pipeline import Pipeline
from stepmeter.telemetry.sender import Sender
from stepmeter.telemetry.user_drain import UserDrain

PATHS = [
    (pipeline, "step_resource"),
    (pipeline, "span_exporters"),
    (pipeline, "step_facts"),
    (emit, "run_span"),
    (emit, "step_spans"),
    (emit, "record_step"),
    (outlet, "readable"),
    (SpanOutlet, "flush"),
    (PhaseBudget, "take"),
    (Aggregator, "collect"),
    (Aggregator, "reading"),
    (Unresolved, "release"),
    (UserDrain, "drain"),
    (Sender, "_deliver"),
    (Pipeline, "_drain"),
    (Pipeline, "_collect"),
]
SETTING_UP = {"step_resource", "span_exporters"}


@pytest.fixture
def arrived(monkeypatch):
    """The spans that a program's own provider gets."""
    spans = InMemorySpanExporter()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    monkeypatch.setattr(trace_api, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(metrics_api, "get_meter_provider", lambda: meters)
    yield lambda: [span.attributes["stepmeter.step"] for span in spans.get_finished_spans() if span.name == "step"]
    tracers.shutdown()
    meters.shutdown()


def run(guard):
    """Publish 20 steps, in two parts with a drain between them, and close; how long that took, in s."""
    recorder, readings = Recorder(), Channel()
    drained = Pipeline(recorder, ANCHOR, guard, lambda: "completed", readings, outbox=Outbox(SpanRecorder(ANCHOR)))
    drained.start()
    for part in (range(1, 11), range(11, 21)):
        for number in part:
            recorder.memory.put(StepMemory(number, None, 1000, 2000, Identity()))
            recorder.timing.put(step(number))
            readings.put(Reading("process.cpu.time", number, number * 10**9))
        drained._wake.set()
        deadline_s = time.monotonic() + 2
        while len(recorder.timing) and drained._thread.is_alive() and time.monotonic() < deadline_s:
            time.sleep(0.01)
    began_s = time.monotonic()
    drained.close(began_s + 20)
    return time.monotonic() - began_s


def test_without_a_failure_every_step_arrives(arrived):
    """Nothing fails by itself."""
    guard = Guard()
    run(guard)
    assert arrived() == list(range(1, 21))
    assert guard.losses() == {}


@pytest.mark.parametrize("times", [1, 1_000_000])
@pytest.mark.parametrize("path", PATHS, ids=path_id)
def test_failure_on_the_drain_thread_is_harmless(arrived, monkeypatch, capfd, path, times):
    """A path that raises once or always is counted, said once a kind, and keeps nobody from the end."""
    left = fail(monkeypatch, path, times)
    guard = Guard()
    took_s = run(guard)
    assert left[0] < times
    assert took_s < 10
    faults = [kind for kind in guard.losses() if kind.startswith("fault: ")]
    assert faults
    said = capfd.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == len(faults)
    if times == 1 and path[1] not in SETTING_UP:
        assert arrived()[-5:] == [16, 17, 18, 19, 20]
