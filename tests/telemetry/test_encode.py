from types import SimpleNamespace

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.telemetry.builders import origin, region, step

from stepmeter.capture.facts import step_facts
from stepmeter.capture.identity import Identity
from stepmeter.telemetry.deliver import Delivery, otlp_client
from stepmeter.telemetry.emit import run_span, step_spans
from stepmeter.telemetry.encode import SpanEncoder
from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.readable import readable


def records():
    batches = [
        step(1, warmup=True),
        step(2, samples=50, identity=Identity(rank=1, world_size=2, strategy="ddp", hw_id="GPU-1")),
        step(3, regions=[region("forward", 0, 30)]),
        step(4, regions=[region("forward", 0, 0), *(region("backward", n, n + 1) for n in range(200))]),
    ]
    spans = [s for batch in batches for s in step_spans(batch, step_facts(batch), None, origin(), children=True)]
    return [*spans, run_span(Identity(), origin(), 0, "started"), *spans]


def test_bytes_are_what_the_sdk_would_send():
    """The request joined from templates is, message for message, what the SDK's own encoder makes of the same spans."""
    encoder = SpanEncoder(origin().resource)
    request = encoder.request([encoder.encode(record) for record in records()], records()[0])

    expected = encode_spans([readable(record, origin().resource) for record in records()])
    assert ExportTraceServiceRequest.FromString(request) == expected


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_lengths_of_any_size(size):
    """Lengths are written as protobuf writes them, whatever their size."""
    record = run_span(Identity(), origin(), 0, "x" * size)
    encoder = SpanEncoder(origin().resource)
    message = ExportTraceServiceRequest.FromString(encoder.request([encoder.encode(record)], record))

    (span,) = message.resource_spans[0].scope_spans[0].spans
    assert size == max(len(attribute.value.string_value) for attribute in span.attributes)


class GrpcError(Exception):
    def __init__(self, name):
        super().__init__(name)
        self._name = name

    def code(self):
        return SimpleNamespace(name=self._name)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, Delivery.SUCCESS),
        (GrpcError("UNAVAILABLE"), Delivery.FAILURE),
        (GrpcError("RESOURCE_EXHAUSTED"), Delivery.FAILURE),
        (GrpcError("INVALID_ARGUMENT"), Delivery.REFUSED),
        (GrpcError("UNAUTHENTICATED"), Delivery.REFUSED),
        (ValueError("Cannot invoke RPC on closed channel!"), Delivery.FAILURE),
    ],
)
def test_grpc_answers_are_told_apart(error, expected, capfd):
    """What may be tried again is, what is refused for good is not, and both are one line on stderr."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    def export(request, metadata, timeout):
        if error is not None:
            raise error

    exporter = OTLPSpanExporter(endpoint="127.0.0.1:9", insecure=True)
    exporter._client = SimpleNamespace(Export=export)
    send = otlp_client(exporter, Guard())

    assert [expected, expected] == [send(b""), send(b"")]
    assert (0 if error is None else 1) == capfd.readouterr().err.count("\n")
    exporter.shutdown()


def test_other_exporters_get_objects():
    """An exporter that is not OTLP's own class is handed the SDK's objects."""
    assert otlp_client(SimpleNamespace(_client=None), Guard()) is None
