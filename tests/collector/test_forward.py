"""Tests of forwarding: the original bytes, retried as the specification says, and never at the store's expense."""

from __future__ import annotations

import gzip
import json
import socket
import time
from dataclasses import replace
from email.utils import formatdate

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from tests.support.backends import grpc_backend, http_backend
from tests.support.otlp import (
    JSON,
    PROTOBUF,
    collector_process,
    metrics,
    post,
    step_span,
    traces,
    wait_until,
)

from stepmeter.collector.destination import RetryPolicy, parse_destination, parse_header, parse_headers
from stepmeter.collector.forward import Forwarder
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import METRICS, TRACES, Encoding
from stepmeter.errors import UsageError

QUICK = RetryPolicy(initial_interval_s=0.01, max_interval_s=0.02, max_elapsed_s=5.0)


def record(step=1, signal=TRACES):
    """A request; those of different steps differ."""
    body = traces(step_span(step)).SerializeToString() if signal is TRACES else metrics()[0].SerializeToString()
    return Record(signal, Encoding.PROTOBUF, body)


@pytest.fixture
def forward():
    """Start forwarders; they end without waiting."""
    started = []

    def make(url, **changes):
        destination = replace(parse_destination(url), **{"name": "there", "retry": QUICK, **changes})
        health = Health()
        forwarder = Forwarder([destination], health)
        started.append(forwarder)
        forwarder.counts = health.counts
        return forwarder

    yield make
    for forwarder in started:
        forwarder.close(0.0)


def counted(forwarder, name):
    """A counter of the only destination."""
    return forwarder.counts().get(f"{name}.there", 0)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_original_bytes_arrive(forward, protocol):
    """Each backend gets byte for byte what the sender sent, with the configured headers."""
    with (grpc_backend if protocol == "grpc" else http_backend)() as backend:
        forwarder = forward(f"{protocol}://{backend.address}", headers=(("x-team", "ours"),))
        sent = [record(1), record(2), record(3, METRICS)]
        for one in sent:
            forwarder.offer(one)
        wait_until(lambda: counted(forwarder, "forwarded") == 3)
    assert sorted(backend.bodies) == sorted(one.body for one in sent)
    assert {headers["x-team"] for headers in backend.headers} == {"ours"}
    if protocol == "http":
        assert sorted(backend.paths) == ["/v1/metrics", "/v1/traces", "/v1/traces"]
        assert {headers["content-type"] for headers in backend.headers} == {PROTOBUF}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_compression_changes_the_transport_only(forward, protocol):
    """A destination with gzip gets the same bytes, compressed on the way."""
    with (grpc_backend if protocol == "grpc" else http_backend)() as backend:
        forwarder = forward(f"{protocol}://{backend.address}", compression="gzip")
        forwarder.offer(record())
        wait_until(lambda: counted(forwarder, "forwarded") == 1)
    (body,) = backend.bodies
    assert (gzip.decompress(body) if protocol == "http" else body) == record().body


def test_json_stays_json_over_http_and_becomes_protobuf_over_grpc(forward):
    """A JSON request goes on as it came where the protocol allows, and as the same message where it does not."""
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x", "traceId": "ab" * 16}]}]}]}).encode()
    with http_backend() as over_http, grpc_backend() as over_grpc:
        for url in (f"http://{over_http.address}", f"grpc://{over_grpc.address}"):
            forwarder = forward(url)
            forwarder.offer(Record(TRACES, Encoding.JSON, body))
            wait_until(lambda: counted(forwarder, "forwarded") == 1)  # noqa: B023 - called at once
    assert over_http.bodies == [body]
    assert over_http.headers[0]["content-type"] == JSON
    message = ExportTraceServiceRequest.FromString(over_grpc.bodies[0])
    assert message.resource_spans[0].scope_spans[0].spans[0].trace_id == b"\xab" * 16


def retry_info(seconds=0):
    """RetryInfo in the two forms of a trailer."""
    info = RetryInfo(retry_delay=Duration(seconds=seconds))
    status = Status(code=8)
    status.details.add().Pack(info)
    return [
        (("google.rpc.retryinfo-bin", info.SerializeToString()),),
        (("grpc-status-details-bin", status.SerializeToString()),),
    ]


@pytest.mark.parametrize(
    ("code", "trailers"),
    [
        (grpc.StatusCode.UNAVAILABLE, ()),
        (grpc.StatusCode.CANCELLED, ()),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ()),
        (grpc.StatusCode.ABORTED, ()),
        (grpc.StatusCode.OUT_OF_RANGE, ()),
        (grpc.StatusCode.DATA_LOSS, ()),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info()[0]),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, retry_info()[1]),
    ],
)
def test_grpc_codes_that_may_pass_are_retried(forward, code, trailers):
    """The retryable codes, and RESOURCE_EXHAUSTED with RetryInfo in either form, lead to another attempt."""
    with grpc_backend((code, trailers), None) as backend:
        forwarder = forward(f"grpc://{backend.address}")
        forwarder.offer(record())
        wait_until(lambda: counted(forwarder, "forwarded") == 1)
    assert backend.bodies == [record().body] * 2
    assert counted(forwarder, "forward_retries") == 1


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED],
)
def test_grpc_codes_that_will_not_pass_are_final(forward, code):
    """Any other code drops the request at once, and the next one is sent."""
    with grpc_backend((code, ()), None) as backend:
        forwarder = forward(f"grpc://{backend.address}", consumers=1)
        forwarder.offer(record(1))
        forwarder.offer(record(2))
        wait_until(lambda: counted(forwarder, "forwarded") == 1)
    assert backend.bodies == [record(1).body, record(2).body]
    assert counted(forwarder, "forward_dropped") == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
@pytest.mark.parametrize("headers", [{}, {"Retry-After": "0"}, {"Retry-After": formatdate(0)}, {"Retry-After": "soon"}])
def test_http_statuses_that_may_pass_are_retried(forward, status, headers):
    """429, 502, 503 and 504 lead to another attempt, with Retry-After in seconds, as a date or as nonsense."""
    with http_backend((status, headers, b""), None) as backend:
        forwarder = forward(f"http://{backend.address}")
        forwarder.offer(record())
        wait_until(lambda: counted(forwarder, "forwarded") == 1)
    assert len(backend.bodies) == 2


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413, 500, 501])
def test_http_statuses_that_will_not_pass_are_final(forward, status):
    """Any other status drops the request at once."""
    with http_backend((status, {}, b""), None) as backend:
        forwarder = forward(f"http://{backend.address}")
        forwarder.offer(record())
        wait_until(lambda: counted(forwarder, "forward_dropped") == 1)
    assert len(backend.bodies) == 1


def test_a_backend_that_says_when_is_asked_then(forward):
    """The delay that a backend asks for goes before our own."""
    with http_backend((503, {"Retry-After": "1"}, b""), None) as backend:
        forwarder = forward(f"http://{backend.address}")
        start_s = time.monotonic()
        forwarder.offer(record())
        wait_until(lambda: counted(forwarder, "forwarded") == 1)
        assert time.monotonic() - start_s >= 1.0


def test_a_request_is_given_up_after_its_time(forward):
    """A backend that never takes a request loses it after the time that the configuration says."""
    with http_backend((503, {}, b"")) as backend:
        quick = forward(f"http://{backend.address}", retry=RetryPolicy(0.01, 0.02, 0.1))
        quick.offer(record())
        wait_until(lambda: counted(quick, "forward_dropped") == 1)
        assert len(backend.bodies) >= 2


def test_a_full_queue_drops_what_is_new_and_counts_it(forward):
    """What waits for a dead backend is bounded in bytes; more than that is dropped, and nobody waits."""
    size = len(record().body)
    with socket.create_server(("127.0.0.1", 0)) as black_hole:
        forwarder = forward(f"http://127.0.0.1:{black_hole.getsockname()[1]}", queue_bytes=3 * size, consumers=1)
        for _ in range(10):
            forwarder.offer(record())
        assert counted(forwarder, "forward_dropped") == 7


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_the_end_does_not_wait_for_the_dead(forward, protocol):
    """With a backend that refuses, or never answers, the end is bounded and everything undelivered is counted."""
    with socket.create_server(("127.0.0.1", 0)) as black_hole:
        closed = socket.create_server(("127.0.0.1", 0))
        refusing = closed.getsockname()[1]
        closed.close()
        for port, limit_s in ((refusing, 10.0), (black_hole.getsockname()[1], 0.3)):
            forwarder = forward(f"{protocol}://127.0.0.1:{port}", consumers=2)
            for step in range(10):
                forwarder.offer(record(step))
            forwarder.close(limit_s)
            wait_until(lambda: counted(forwarder, "forward_dropped") >= 10)  # noqa: B023 - called at once
            assert counted(forwarder, "forwarded") == 0


def test_the_end_sends_what_waits(forward):
    """What waits for a backend that answers is delivered before the end."""
    with http_backend() as backend:
        forwarder = forward(f"http://{backend.address}")
        for step in range(50):
            forwarder.offer(record(step))
        forwarder.close(10.0)
        assert counted(forwarder, "forwarded") == len(backend.bodies) == 50


def test_what_a_backend_rejects_is_counted(forward):
    """A partial success of a backend is counted under its name."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans = 3
    with grpc_backend(answer.SerializeToString()) as backend:
        forwarder = forward(f"grpc://{backend.address}")
        forwarder.offer(record())
        wait_until(lambda: counted(forwarder, "forward_rejected") == 3)


def test_a_connection_that_the_backend_closed_is_opened_again(forward):
    """A kept connection that the backend has closed costs no attempt."""
    with http_backend((200, {"Connection": "close"}, b""), None) as backend:
        forwarder = forward(f"http://{backend.address}", consumers=1)
        for step in range(3):
            forwarder.offer(record(step))
        wait_until(lambda: counted(forwarder, "forwarded") == 3)
    assert counted(forwarder, "forward_retries") == 0


def test_a_collector_passes_on_once_what_it_keeps(tmp_path):
    """A running collector stores a request, passes it on once however often it is sent, and ends at once."""
    with http_backend() as http, grpc_backend() as over_grpc:
        forwards = ["--forward", f"http://{http.address}", "--forward", f"traces=grpc://{over_grpc.address}"]
        with collector_process(tmp_path, "--run", "r", *forwards, "--forward-header", "Authorization=Bearer x") as it:
            body = traces(step_span(1)).SerializeToString()
            for _ in range(3):
                assert post(it.http, body).status == 200
            assert post(it.http, metrics()[0].SerializeToString(), path="/v1/metrics").status == 200
            code, _ = it.stop()
        assert code == 0
    assert sorted(http.bodies) == sorted([body, metrics()[0].SerializeToString()])
    assert over_grpc.bodies == [body]
    assert over_grpc.headers[0]["authorization"] == "Bearer x"


@pytest.mark.parametrize(
    ("url", "endpoint", "secure", "posts_to"),
    [
        ("grpc://localhost:14317", "localhost:14317", False, None),
        ("grpcs://example.org", "example.org:4317", True, None),
        ("grpc://[::1]:1", "[::1]:1", False, None),
        ("https://example.org/otlp", "https://example.org/otlp", True, "https://example.org/otlp/v1/traces"),
        ("http://localhost:4318/", "http://localhost:4318/", False, "http://localhost:4318/v1/traces"),
        ("traces=http://localhost:1/in", "http://localhost:1/in", False, "http://localhost:1/in"),
    ],
)
def test_destinations_are_read_from_urls(url, endpoint, secure, posts_to):
    """A destination's scheme says how to speak to it; a URL of one signal is taken as it is."""
    destination = parse_destination(url)
    assert (destination.endpoint, destination.secure) == (endpoint, secure)
    if posts_to:
        assert destination.url("traces") == posts_to


@pytest.mark.parametrize("url", ["", "localhost:4317", "ftp://a:1", "grpc://", "http://u:p@host", "http://[::1", "a=b"])
def test_what_is_no_destination_is_refused(url):
    """Anything else is a usage error that says what is expected."""
    with pytest.raises(UsageError, match="expected grpc://host:port"):
        parse_destination(url)


def test_headers_are_read_as_the_environment_writes_them():
    """Headers are name=value, in a list with percent-encoded values; an error never shows a value."""
    assert parse_headers("Authorization=Bearer%20x, a=1,") == (("authorization", "Bearer x"), ("a", "1"))
    for text in ("secret", "a b=c", "=c", "a=b\nc: d"):
        with pytest.raises(UsageError, match="expected name=value") as caught:
            parse_header(text)
        assert "c" not in str(caught.value).partition('"; expected')[2]
