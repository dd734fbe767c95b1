"""Tests with Rotel, a collector that others wrote in Rust: before ours, and behind it."""

from __future__ import annotations

import os
import socket
import subprocess
import sysconfig
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpanExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.support.backends import grpc_backend, http_backend
from tests.support.otlp import collector_process, logs, metrics, post, run_resource, span, step_span, traces, wait_until

from stepmeter.collector import rotel as inside
from stepmeter.store.reader import find_run, open_run

rotel = pytest.importorskip("rotel", reason="Rotel has wheels for some versions of Python only")
AGENT = Path(rotel.__file__).parent / "rotel-agent"
ENV_FILE = Path(__file__).parents[2] / "collector-config" / "rotel.env"


def free_ports(number):
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


@contextmanager
def agent(endpoint, protocol, *arguments, **environ):
    """Rotel with the settings of collector-config/rotel.env, on free ports, sending to an endpoint."""
    settings = dict(line.split("=", 1) for line in ENV_FILE.read_text().splitlines() if not line.startswith("#"))
    grpc_port, http_port = free_ports(2)
    settings |= {
        "ROTEL_OTLP_GRPC_ENDPOINT": f"127.0.0.1:{grpc_port}",
        "ROTEL_OTLP_HTTP_ENDPOINT": f"127.0.0.1:{http_port}",
        "ROTEL_OTLP_EXPORTER_ENDPOINT": endpoint,
        "ROTEL_OTLP_EXPORTER_PROTOCOL": protocol,
        "ROTEL_BATCH_TIMEOUT": "100ms",
        "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR") or "",
    }
    process = subprocess.Popen(
        [AGENT, "start", *arguments],
        env={**os.environ, **settings, **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _listens(http_port) and _listens(grpc_port))
        yield f"127.0.0.1:{grpc_port}", f"127.0.0.1:{http_port}"
    finally:
        process.terminate()
        process.wait(20)


def _listens(port):
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def stored(directory, sql):
    with open_run(find_run("run-1", directory)) as reader:
        return reader.snapshot().rows(sql)


def send_spans(exporter):
    """Two spans and a step by the official SDK."""
    provider = TracerProvider(resource=Resource(run_resource()))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    facts = {"stepmeter.step": 1, "stepmeter.traced.cpu_ns": 8_000_000, "stepmeter.rank": 3}
    with provider.get_tracer("stepmeter").start_as_current_span("step", attributes=facts):
        provider.get_tracer("user").start_span("inner", attributes={"a": 1.5, "b": "t", "c": [1, 2]}).end()
    provider.shutdown()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_through_rotel_to_us(tmp_path, protocol):
    """Spans go from the SDK through Rotel to our store over one protocol all the way, and arrive whole."""
    with collector_process(tmp_path) as ours:
        endpoint = f"http://{ours.grpc if protocol == 'grpc' else ours.http}"
        with agent(endpoint, protocol) as (over_grpc, over_http):
            if protocol == "grpc":
                send_spans(GrpcSpanExporter(endpoint=over_grpc, insecure=True))
            else:
                send_spans(HttpSpanExporter(endpoint=f"http://{over_http}/v1/traces"))
            request, found = metrics()
            found.add(name="m").gauge.data_points.add(time_unix_nano=1, as_int=5)
            assert post(over_http, request.SerializeToString(), path="/v1/metrics").status == 200
            wait_until((tmp_path / "run-1" / "run.duckdb").exists)
            wait_until(lambda: stored(tmp_path, "SELECT count(*) FROM spans") == [(2,)])
            wait_until(lambda: stored(tmp_path, "SELECT count(*) FROM metrics") == [(1,)])
        assert ours.stop()[0] == 0
    assert stored(tmp_path, "SELECT rank, step, traced_cpu_ns FROM steps") == [(3, 1, 8_000_000)]
    inner = "SELECT s.attributes FROM spans s JOIN steps p ON s.parent_span_id = p.span_id"
    assert stored(tmp_path, inner) == [('{"a":1.5,"b":"t","c":[1,2]}',)]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_through_us_to_rotel_and_on(tmp_path, protocol):
    """What we forward to Rotel comes out behind it with every span and attribute."""
    backend_of = grpc_backend if protocol == "grpc" else http_backend
    with backend_of() as backend, agent(f"http://{backend.address}", protocol) as (over_grpc, over_http):
        url = f"grpc://{over_grpc}" if protocol == "grpc" else f"http://{over_http}"
        sent = traces(*(step_span(step) for step in range(1, 51)))
        with collector_process(tmp_path, "--forward", url) as ours:
            assert post(ours.http, sent.SerializeToString()).status == 200
            wait_until(lambda: len(_spans(backend.bodies, protocol)) == 50)
            assert ours.stop()[0] == 0
        arrived = _spans(backend.bodies, protocol)
    assert {span.span_id for span in arrived} == {s.span_id for s in sent.resource_spans[0].scope_spans[0].spans}
    first = min(arrived, key=lambda span: span.start_time_unix_nano)
    expected = sent.resource_spans[0].scope_spans[0].spans[0]
    assert {a.key: a.value for a in first.attributes} == {a.key: a.value for a in expected.attributes}


def _spans(bodies, protocol):
    import gzip

    found = []
    for body in bodies:
        plain = gzip.decompress(body) if protocol == "http" and body[:2] == b"\x1f\x8b" else body
        for part in ExportTraceServiceRequest.FromString(plain).resource_spans:
            for scope in part.scope_spans:
                found.extend(scope.spans)
    return found


def test_our_processor_inside_rotel(tmp_path):
    """Rotel with our file as its processor keeps traces, metrics and logs in our store, and sends them on as ever."""
    file = inside.__file__
    processors = [
        *("--otlp-with-trace-processor", file),
        *("--otlp-with-metrics-processor", file),
        *("--otlp-with-logs-processor", file),
    ]
    environ = {
        "STEPMETER_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join([sysconfig.get_path("purelib"), str(Path(file).parents[2])]),
    }
    steps = traces(step_span(1), span("x", number=9, attributes={"a": 1.5, "b": True, "c": "t"}))
    steps.resource_spans[0].scope_spans[0].spans[1].attributes.add(key="l").value.array_value.values.add(int_value=7)
    numbers, found = metrics()
    found.add(name="g").gauge.data_points.add(time_unix_nano=1, as_double=0.5)
    counter = found.add(name="c").sum
    counter.aggregation_temporality = 2
    counter.data_points.add(time_unix_nano=1, as_int=5)
    found.add(name="h").histogram.data_points.add(time_unix_nano=1, count=3, sum=1.5, bucket_counts=[1, 2])
    with http_backend() as backend, agent(f"http://{backend.address}", "http", *processors, **environ) as (_, http):
        for path, request in (("traces", steps), ("metrics", numbers), ("logs", logs("hello", severity_number=9))):
            assert post(http, request.SerializeToString(), path=f"/v1/{path}").status == 200
        wait_until((tmp_path / "run-1" / "run.duckdb").exists)
        wait_until(lambda: stored(tmp_path, "SELECT count(*) FROM logs") == [(1,)])
        wait_until(lambda: stored(tmp_path, "SELECT count(*) FROM spans") == [(2,)])
        wait_until(lambda: stored(tmp_path, "SELECT count(*) FROM histograms") == [(1,)])
        wait_until(lambda: len(backend.bodies) == 3)
    assert stored(tmp_path, "SELECT step, traced_cpu_ns, warmup FROM steps") == [(1, 8_000_000, True)]
    assert stored(tmp_path, "SELECT attributes FROM spans WHERE name = 'x'") == [
        ('{"a":1.5,"b":true,"c":"t","l":[7]}',)
    ]
    assert stored(tmp_path, "SELECT metric, value, temporality FROM metrics ORDER BY metric") == [
        ("c", 5.0, "cumulative"),
        ("g", 0.5, None),
    ]
    assert stored(tmp_path, "SELECT count, sum, bucket_counts FROM histograms") == [(3, 1.5, [1, 2])]
    assert stored(tmp_path, "SELECT body, severity_number FROM logs") == [("hello", 9)]
