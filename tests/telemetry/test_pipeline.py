import time

import pytest
from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.metrics import Metrics
from tests.telemetry.builders import ANCHOR, MS, step

from stepmeter.capture.channel import Channel
from stepmeter.capture.identity import Identity
from stepmeter.capture.reading import Reading
from stepmeter.capture.region import DeviceTimes
from stepmeter.capture.step import Recorder, StepMemory
from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.pipeline import Pipeline


@pytest.fixture
def backend(monkeypatch):
    """A user's own providers, whose sampler drops everything, and where their exporters put what they get."""
    spans, metrics = InMemorySpanExporter(), Metrics()
    tracers = TracerProvider(sampler=sampling.ALWAYS_OFF, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    reader = PeriodicExportingMetricReader(metrics, export_interval_millis=1e9)
    meters = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(trace_api, "get_tracer_provider", lambda: tracers)
    monkeypatch.setattr(metrics_api, "get_meter_provider", lambda: meters)
    monkeypatch.setenv("STEPMETER_RUN_ID", "run-1")
    monkeypatch.setenv("STEPMETER_RUN_NAME", "demo")
    yield spans, metrics
    tracers.shutdown()
    meters.shutdown()


def drained(recorder, guard=None, readings=None):
    pipeline = Pipeline(recorder, ANCHOR, guard or Guard(strict=False), lambda: "completed", readings or Channel())
    pipeline.start()
    assert pipeline.close(time.monotonic() + 20) == 0


def named(spans, name):
    return [span for span in spans.get_finished_spans() if span.name == name]


def test_every_step_arrives_past_the_users_sampler(backend):
    """All steps reach the user's exporters although the user's sampler drops all spans."""
    spans, metrics = backend
    recorder = Recorder(capacity=5000)
    for number in range(1, 3001):
        recorder.timing.put(step(number))
    drained(recorder)

    assert list(range(1, 3001)) == [span.attributes["stepmeter.step"] for span in named(spans, "step")]
    assert metrics.points("stepmeter.steps")[0].value == 3000


def test_run_is_marked_by_two_short_spans(backend):
    """A run has a span at its start and one at its end with the outcome."""
    spans, _ = backend
    recorder = Recorder()
    recorder.timing.put(step(1))
    drained(recorder)

    assert [span.attributes["stepmeter.outcome"] for span in named(spans, "run")] == ["started", "completed"]


def test_drops_are_counted_in_the_metrics(backend):
    """What a full queue dropped is a counter that reaches the backend."""
    _, metrics = backend
    recorder = Recorder(capacity=10)
    for number in range(1, 16):
        recorder.timing.put(step(number))
    drained(recorder)

    (dropped,) = metrics.points("stepmeter.dropped")
    assert (dropped.value, dropped.attributes["kind"]) == (5, "step: queue full")


def test_memory_joins_its_step(backend):
    """A memory snapshot is found again on the span of its step."""
    spans, _ = backend
    recorder = Recorder()
    recorder.memory.put(StepMemory(1, None, 1000, 2000, Identity()))
    recorder.timing.put(step(1))
    recorder.timing.put(step(2))
    drained(recorder)

    assert [span.attributes.get("stepmeter.memory.peak_allocated") for span in named(spans, "step")] == [1000, None]


def test_own_cost_is_reported(backend):
    """The CPU time of our own threads is a metric in seconds."""
    _, metrics = backend
    recorder = Recorder()
    recorder.timing.put(step(1))
    drained(recorder)

    (point,) = metrics.points("stepmeter.self.cpu_time")
    assert point.value > 0


def test_one_bad_step_spares_the_others(backend, capfd):
    """A step that can't be turned into telemetry is counted and said once, and the others arrive."""
    spans, metrics = backend
    recorder = Recorder()
    for item in (step(1), "no step at all", "nor this", step(2)):
        recorder.timing.put(item)
    drained(recorder)

    assert [span.attributes["stepmeter.step"] for span in named(spans, "step")] == [1, 2]
    (dropped,) = metrics.points("stepmeter.dropped")
    assert dropped.value == 2
    assert capfd.readouterr().err.count("\n") == 1


def test_readings_keep_their_own_times(backend):
    """Two readings of one series are two points, each at the time at which it was read."""
    _, metrics = backend
    readings = Channel()
    for at_s, seconds, resident_bytes in ((1, 0.5, 100), (2, 0.75, 200)):
        readings.put(Reading("process.cpu.time", seconds, at_s * 10**9))
        readings.put(Reading("process.memory.usage", resident_bytes, at_s * 10**9))
    drained(Recorder(), readings=readings)

    points = [(p.time_unix_nano - ANCHOR.unix_ns, p.value) for p in metrics.points("process.cpu.time")]
    assert points == [(10**9, 0.5), (2 * 10**9, 0.75)]
    assert [point.value for point in metrics.points("process.memory.usage")] == [100, 200]


class Device:
    """Device times that are known after so many questions."""

    def __init__(self, questions):
        self.questions = questions

    def resolve(self, regions):
        self.questions -= 1
        if self.questions >= 0:
            return None
        return DeviceTimes((1 * MS, 2 * MS, 3 * MS, 4 * MS), 9 * MS, 5 * MS, 15 * MS, lost_pairs=1)


def test_steps_wait_for_their_device_times(backend):
    """A step whose device times are not known yet is sent once they are, and those behind it after it."""
    spans, metrics = backend
    recorder = Recorder()
    recorder.timing.put(step(1, device=Device(questions=2)))
    recorder.timing.put(step(2))
    drained(recorder)

    first, second = named(spans, "step")
    assert first.attributes["stepmeter.phase.forward.gpu_ns"] == 2 * MS
    assert first.attributes["stepmeter.traced.gpu_ns"] == 9 * MS
    assert first.attributes["stepmeter.device.end_ns"] == ANCHOR.unix_ns_of(15 * MS)
    assert "stepmeter.traced.gpu_ns" not in second.attributes
    assert [span.attributes.get("stepmeter.gpu_ns") for span in named(spans, "forward")] == [2 * MS, None]
    (dropped,) = metrics.points("stepmeter.dropped")
    assert (dropped.attributes["kind"], dropped.value) == ("device pair: failed", 1)


def test_exit_does_not_wait_for_a_device_that_hangs(backend):
    """At the end a step whose device times do not come is sent without them, and their loss is counted."""
    spans, metrics = backend
    recorder = Recorder()
    recorder.timing.put(step(1, device=Device(questions=1_000_000)))
    drained(recorder)

    (only,) = named(spans, "step")
    assert "stepmeter.traced.gpu_ns" not in only.attributes
    (dropped,) = metrics.points("stepmeter.dropped")
    assert (dropped.attributes["kind"], dropped.value) == ("device times: not known at exit", 1)


def test_snapshots_of_dropped_steps_do_not_pile_up(backend):
    """Memory snapshots whose steps were dropped are forgotten, and those of later steps are not."""
    recorder = Recorder(capacity=10)
    pipeline = Pipeline(recorder, ANCHOR, Guard(), lambda: "completed", Channel())
    pipeline._memory = {number: StepMemory(number, None, number, 0, Identity()) for number in range(1, 31)}
    recorder.timing.put(step(25))
    pipeline.start()
    pipeline.close(time.monotonic() + 20)

    assert list(pipeline._memory) == [26, 27, 28, 29, 30]
