"""Tests of the receivers over real sockets."""

from __future__ import annotations

import gzip
import http.client
import json
import socket

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from tests.support.otlp import JSON, PROTOBUF, metrics, post, span, step_span, traces

from stepmeter.collector.config import CollectorConfig, Endpoint
from stepmeter.collector.decode import RunKey
from stepmeter.collector.server import Collector
from stepmeter.collector.verdicts import UnavailableError
from stepmeter.errors import StepmeterError, UsageError
from stepmeter.store.reader import open_run

LIMIT_BYTES = 100_000


@pytest.fixture
def collector(tmp_path):
    """A collector in this process, on free ports, with a limit of 100 kB."""
    endpoint = Endpoint("127.0.0.1", 0, LIMIT_BYTES)
    running = Collector(CollectorConfig(endpoint, endpoint, tmp_path), RunKey("run-1", "demo"))
    running.start()
    yield running
    running.close()


@pytest.fixture
def stub(collector):
    """The official gRPC client stub for traces."""
    with grpc.insecure_channel(collector.ready.grpc) as channel:
        yield TraceServiceStub(channel)


def stored(collector, sql):
    """Rows of the run once the collector has drained."""
    collector._processor.close()
    collector._processor.close = lambda: None
    with open_run(collector.ready.run_dir) as reader:
        return reader.snapshot().rows(sql)


def test_both_protocols_and_encodings_reach_the_store(collector, stub):
    """gRPC, HTTP with protobuf, HTTP with JSON and gzip are four ways to the same rows."""
    stub.Export(traces(step_span(1)))
    stub.Export(traces(step_span(2)), compression=grpc.Compression.Gzip)
    post(collector.ready.http, traces(step_span(3)).SerializeToString())
    post(collector.ready.http, gzip.compress(traces(step_span(4)).SerializeToString()), Content_Encoding="gzip")
    in_json = {"traceId": "ab" * 16, "spanId": "cd" * 8, "name": "json", "startTimeUnixNano": "1", "endTimeUnixNano": 2}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [in_json]}]}]}).encode()
    post(collector.ready.http, body, Content_Type=f"{JSON}; charset=utf-8")
    found = stored(collector, "SELECT name, step, trace_id FROM spans ORDER BY step NULLS LAST")
    assert [row[:2] for row in found] == [("step", 1), ("step", 2), ("step", 3), ("step", 4), ("json", None)]
    assert found[-1][2] == "ab" * 16


def test_success_is_200_in_the_type_of_the_request(collector):
    """A request that is durable is answered with 200 and an empty message of its own type."""
    answer = post(collector.ready.http, traces(step_span(1)).SerializeToString())
    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (200, b"", PROTOBUF)
    answer = post(collector.ready.http, b"{}", Content_Type=JSON, path="/v1/metrics")
    assert (answer.status, answer.body, answer.headers["Content-Type"]) == (200, b"{}", JSON)


def test_what_was_rejected_is_said(collector, stub):
    """A request of which some spans can't be held is a success that counts them."""
    bad = span("bad")
    bad.span_id = b""
    answer = stub.Export(traces(bad, step_span(1)))
    assert answer.partial_success.rejected_spans == 1
    answer = ExportTraceServiceResponse.FromString(
        post(collector.ready.http, traces(bad, step_span(2)).SerializeToString()).body
    )
    assert answer.partial_success.rejected_spans == 1
    assert "expected 16 and 8" in answer.partial_success.error_message
    assert stored(collector, "SELECT step FROM steps ORDER BY step") == [(1,), (2,)]


@pytest.mark.parametrize(
    ("status", "body", "headers"),
    [
        (400, b"\xff\xff\xff", {}),
        (400, b"{", {"Content_Type": JSON}),
        (400, b"no gzip", {"Content_Encoding": "gzip"}),
        (400, gzip.compress(b"x" * 100, mtime=0)[:-10], {"Content_Encoding": "gzip"}),
        (404, b"", {"path": "/v1/nothing"}),
        (413, b"x" * (LIMIT_BYTES + 1), {}),
        (413, gzip.compress(b"x" * (LIMIT_BYTES + 1)), {"Content_Encoding": "gzip"}),
        (415, b"", {"Content_Type": "text/plain"}),
        (415, b"", {"Content_Encoding": "br"}),
    ],
)
def test_a_bad_http_request_has_its_status(collector, status, body, headers):
    """Each kind of bad request has its HTTP status and a Status message as its body, and leaves nothing."""
    answer = post(collector.ready.http, body, **headers)
    assert answer.status == status
    if answer.headers["Content-Type"] == PROTOBUF:
        message = Status.FromString(answer.body).message
    else:
        message = json.loads(answer.body)["message"]
    assert message
    assert "\n" not in message
    assert stored(collector, "SELECT * FROM spans") == []


def test_a_bad_grpc_request_is_an_invalid_argument(collector):
    """Bytes that are no request are INVALID_ARGUMENT; more bytes than the limit RESOURCE_EXHAUSTED, gzip or not."""
    method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
    with grpc.insecure_channel(collector.ready.grpc) as channel:
        send = channel.unary_unary(method)
        for body, compression, code in [
            (b"\xff\xff", None, grpc.StatusCode.INVALID_ARGUMENT),
            (b"x" * (LIMIT_BYTES + 1), None, grpc.StatusCode.RESOURCE_EXHAUSTED),
            (b"x" * (LIMIT_BYTES + 1), grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED),
        ]:
            with pytest.raises(grpc.RpcError) as caught:
                send(body, compression=compression)
            assert caught.value.code() == code
    assert collector.health.counts()["requests_malformed"] == 1


def test_a_sender_is_told_when_to_come_again(collector, stub, monkeypatch):
    """What can't be made durable now is UNAVAILABLE with RetryInfo in both forms, or 503 with Retry-After."""

    def refuse(record):
        raise UnavailableError("no room")

    monkeypatch.setattr(collector._processor, "accept", refuse)
    with pytest.raises(grpc.RpcError) as caught:
        stub.Export(traces(step_span(1)))
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "no room")
    trailers = {key: value for key, value in caught.value.trailing_metadata() if key.endswith("-bin")}
    assert RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"]).retry_delay.seconds == 1
    assert Status.FromString(trailers["grpc-status-details-bin"]).details[0].Is(RetryInfo.DESCRIPTOR)
    answer = post(collector.ready.http, traces(step_span(1)).SerializeToString())
    assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
    assert Status.FromString(answer.body).message == "no room"


def test_a_connection_carries_many_requests(collector):
    """HTTP connections are kept alive, also over an error, and bodies may come in chunks."""
    host, port = collector.ready.http.rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    headers = {"Content-Type": PROTOBUF}
    for step in (1, 2):
        body = traces(step_span(step)).SerializeToString()
        connection.request("POST", "/v1/traces", iter([body[:10], body[10:]]), headers, encode_chunked=True)
        assert connection.getresponse().read() == b""
        connection.request("POST", "/v1/traces", b"\xff", headers)
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (400, None)
        answer.read()
    connection.close()
    assert stored(collector, "SELECT step FROM steps ORDER BY step") == [(1,), (2,)]


def test_a_sender_that_goes_away_midway_leaves_nothing(collector):
    """A body that ends too early is no request."""
    host, port = collector.ready.http.rsplit(":", 1)
    body = traces(step_span(1)).SerializeToString()
    head = f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {PROTOBUF}\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head.encode() + body[:-5])
        connection.shutdown(socket.SHUT_WR)
        assert b"400 Bad Request" in connection.recv(4096)
    assert stored(collector, "SELECT * FROM steps") == []


def test_health_and_readiness_are_told(collector):
    """/healthz counts, /readyz says whether segments can be written, and a GET elsewhere is refused."""
    host, port = collector.ready.http.rsplit(":", 1)
    post(collector.ready.http, traces(step_span(1)).SerializeToString())

    def get(path):
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        found = answer.status, json.loads(answer.read())
        connection.close()
        return found

    status, content = get("/healthz")
    assert (status, content["counts"]["requests_accepted"]) == (200, 1)
    assert get("/readyz") == (200, {"status": "ok", "trouble": None})
    collector._processor.trouble = "no room"
    assert get("/readyz") == (503, {"status": "trouble", "trouble": "no room"})
    assert get("/v1/traces")[0] == 405
    assert get("/other")[0] == 404


def test_only_the_signals_of_the_pipelines_are_received(tmp_path):
    """A collector without a pipeline for metrics does not take metrics."""
    endpoint = Endpoint("127.0.0.1", 0)
    running = Collector(CollectorConfig(endpoint, endpoint, tmp_path, signals=("traces",)))
    running.start()
    assert post(running.ready.http, metrics()[0].SerializeToString(), path="/v1/metrics").status == 404
    running.close()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_address_that_is_taken_is_one_line(collector, tmp_path, protocol):
    """A second collector on the same address fails loudly, and lets go of all it had taken."""
    host, port = getattr(collector.ready, protocol).rsplit(":", 1)
    taken = {"grpc": None, "http": None, protocol: Endpoint(host, int(port))}
    for _ in range(2):
        with pytest.raises(StepmeterError, match=rf"can't listen on {host}:{port} .*--{protocol}"):
            Collector(CollectorConfig(**taken, directory=tmp_path / "other"))


def test_a_directory_that_cannot_be_written_is_one_line(tmp_path):
    """A directory of runs that can't be made is refused at start."""
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"can't write to .*choose another with --dir"):
        Collector(CollectorConfig(None, None, tmp_path / "file" / "runs"))
