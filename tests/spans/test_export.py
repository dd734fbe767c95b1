import time

import pytest
from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader as Periodic
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.metrics import Metrics
from tests.support.recorded import recorded_spans

from stepmeter import span
from stepmeter.capture.channel import Channel
from stepmeter.capture.outbox import Outbox
from stepmeter.capture.step import Recorder
from stepmeter.telemetry import user_drain
from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.pipeline import Pipeline
from stepmeter.telemetry.user_spans import SpanWriter, UserSpanEncoder, readable_user_span


class Counting(SpanProcessor):
    def __init__(self):
        self.names = []

    def on_end(self, span):
        self.names.append(span.name)


@pytest.fixture
def send(monkeypatch):
    """Record what a function does, and send it through a program's own providers; gives spans and metrics."""

    def sent(work, sampler=sampling.DEFAULT_ON, processor=None, **outbox):
        exporter, metrics = InMemorySpanExporter(), Metrics()
        tracers = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(exporter))
        if processor is not None:
            tracers.add_span_processor(processor)
        meters = MeterProvider([Periodic(metrics, export_interval_millis=1e9)], shutdown_on_exit=False)
        monkeypatch.setattr(trace_api, "get_tracer_provider", lambda: tracers)
        monkeypatch.setattr(metrics_api, "get_meter_provider", lambda: meters)
        with recorded_spans() as (recorder, _):
            recorder.decide = user_drain.sampler_decision(tracers)
            work()
            box = Outbox(recorder, **outbox)
            pipeline = Pipeline(
                Recorder(), recorder.anchor, Guard(strict=True), lambda: "completed", Channel(), outbox=box
            )
            pipeline.start()
            assert pipeline.close(time.monotonic() + 20) == 0
        tracers.shutdown()
        meters.shutdown()
        return {each.name: each for each in exporter.get_finished_spans()}, metrics

    return sent


def work():
    with span("forward", rows=3, shape=[1, 2]) as forward:
        forward.add_event("cached", {"hit": True})
        with span("attn"):
            pass
    try:
        with span("risky"):
            raise ValueError("bad")  # noqa: TRY301 - what a program does
    except ValueError:
        pass


def test_spans_reach_the_programs_exporters(send):
    """A user span arrives with its ids, parent, path, attributes, thread, events and error."""
    spans, _ = send(work, common={"stepmeter.attempt": 2})
    forward, attn, risky = spans["forward"], spans["attn"], spans["risky"]

    assert attn.parent.span_id == forward.context.span_id
    assert dict(attn.attributes)["stepmeter.span.path"] == "forward/attn"
    assert dict(forward.attributes) | {"thread.id": 0} == {
        "rows": 3,
        "shape": [1, 2],
        "stepmeter.span.path": "forward",
        "stepmeter.step": 0,
        "stepmeter.rank": 0,
        "stepmeter.attempt": 2,
        "thread.id": 0,
        "thread.name": "MainThread",
    }
    assert [event.name for event in forward.events] == ["cached"]
    assert (risky.attributes["error.type"], risky.status.status_code.name) == ("ValueError", "ERROR")
    assert forward.start_time <= attn.start_time <= attn.end_time <= forward.end_time


def test_the_users_sampler_decides_over_user_spans_and_not_over_durations(send):
    """What the sampler drops is not sent, and is in the histogram all the same."""
    spans, metrics = send(work, sampler=sampling.ALWAYS_OFF)

    assert {*spans} == {"run"}
    assert {point.attributes["path"]: point.count for point in metrics.points("stepmeter.span.duration")} == {
        "forward": 1,
        "forward/attn": 1,
        "risky": 1,
    }


def test_processors_without_an_exporter_hear_of_user_spans(send):
    """A program's own span processor is told each span that ended."""
    counting = Counting()
    send(work, processor=counting)

    assert sorted(counting.names) == ["attn", "forward", "risky"]


def test_paths_of_the_histogram_are_bounded(send, monkeypatch):
    """Beyond the limit durations are counted under `other`."""
    monkeypatch.setattr(user_drain, "MAX_PATHS", 3)

    def many():
        for number in range(10):
            with span(f"request {number}"):
                pass

    _, metrics = send(many)
    counts = {point.attributes["path"]: point.count for point in metrics.points("stepmeter.span.duration")}
    assert counts.pop("other") == 7
    assert len(counts) == 3


def test_bytes_for_otlp_are_those_of_the_sdk():
    """Each span, bare or with nested attributes, a link, events and an error, is encoded as the SDK's encoder does."""
    with recorded_spans() as (recorder, _):
        work()
        with span("bare"):
            pass
        with span("odd", nested={"a": [1, {"b": True}]}, nothing=None, text="é"):
            pass
        recorder.queue[-1].training_step = 7
        step = trace_api.SpanContext(5, 6, is_remote=False)
        writer, encoder = SpanWriter(recorder.anchor, {"stepmeter.rank": 0}, lambda _: step), UserSpanEncoder()
        records = [writer.record(each) for each in recorder.queue]
    resource = Resource({})
    for record in records:
        ((expected,),) = [
            scope.spans for scope in encode_spans([readable_user_span(record, resource)]).resource_spans[0].scope_spans
        ]
        assert SpanMessage.FromString(encoder.encode(record)) == expected


def test_least_greatest_and_percentiles_are_known(send):
    """The histogram of a path has the least and the greatest duration, and counts by bounds for percentiles."""

    def three():
        for duration_ns in (1_000_000, 2_000_000, 50_000_000):
            with span("work") as part:
                part.start_ns -= duration_ns

    _, metrics = send(three)
    (point,) = metrics.points("stepmeter.span.duration")
    assert 0.001 <= point.min < 0.002
    assert 0.05 <= point.max < 1
    assert sum(point.bucket_counts) == 3
    assert len([count for count in point.bucket_counts if count]) >= 2
