"""OTLP requests in round numbers, and a collector in a process of its own to send them to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.support.rows import MS

if TYPE_CHECKING:
    from collections.abc import Iterator

PROTOBUF = "application/x-protobuf"
JSON = "application/json"


def key_values(attributes: dict[str, Any]) -> list[KeyValue]:
    """Attributes as OTLP writes them."""
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Any) -> AnyValue:
    field = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value", bytes: "bytes_value"}
    return AnyValue(**{field[type(value)]: value})


def step_span(step: int, *, rank: int | None = 0, **attributes: Any) -> Span:
    """A step of 10 ms: 2 ms input wait, 3 ms forward, 5 ms backward; step n starts at n * 10 ms."""
    facts: dict[str, Any] = {
        "stepmeter.step": step,
        "stepmeter.attempt": 0,
        "stepmeter.world_size": 1,
        "stepmeter.traced.cpu_ns": 8 * MS,
        "stepmeter.phase.input_wait.cpu_ns": 2 * MS,
        "stepmeter.phase.input_wait.count": 1,
        "stepmeter.phase.forward.cpu_ns": 3 * MS,
        "stepmeter.phase.forward.count": 1,
        "stepmeter.phase.backward.cpu_ns": 5 * MS,
        "stepmeter.phase.backward.count": 1,
        "stepmeter.microbatches": 1,
        "stepmeter.warmup": step == 1,
    }
    if rank is not None:
        facts["stepmeter.rank"] = rank
    return span("step", number=step * 1000 + (rank or 0), start_ns=step * 10 * MS, attributes={**facts, **attributes})


def span(
    name: str, *, number: int = 1, start_ns: int = 0, attributes: dict[str, Any] | None = None, **fields: Any
) -> Span:
    """A span of 10 ms whose ids are its number."""
    return Span(
        trace_id=number.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        name=name,
        kind=1,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + 10 * MS,
        attributes=key_values(attributes or {}),
        **fields,
    )


def run_resource(run_id: str | None = "run-1", **attributes: Any) -> dict[str, Any]:
    """Attributes of the resource of a training process; keywords have `_` for `.`."""
    named = {"service.name": "train", "host.name": "host", "process.pid": 42}
    if run_id:
        named["stepmeter.run.id"] = run_id
    return {**named, **attributes}


def traces(*spans: Span, resource: dict[str, Any] | None = None, scope: str = "stepmeter") -> ExportTraceServiceRequest:
    """A request with one resource and one scope."""
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    resource_spans.resource.attributes.extend(key_values(run_resource() if resource is None else resource))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = scope
    scope_spans.spans.extend(spans)
    return request


def metrics(resource: dict[str, Any] | None = None) -> tuple[ExportMetricsServiceRequest, Any]:
    """A request of metrics, and the list of metrics in it to add to."""
    request = ExportMetricsServiceRequest()
    resource_metrics = request.resource_metrics.add()
    resource_metrics.resource.attributes.extend(key_values(run_resource() if resource is None else resource))
    scope_metrics = resource_metrics.scope_metrics.add()
    scope_metrics.scope.name = "stepmeter"
    return request, scope_metrics.metrics


def logs(*bodies: str, resource: dict[str, Any] | None = None, **fields: Any) -> ExportLogsServiceRequest:
    """A request of log records; keywords are fields of each."""
    request = ExportLogsServiceRequest()
    resource_logs = request.resource_logs.add()
    resource_logs.resource.attributes.extend(key_values(run_resource() if resource is None else resource))
    for body in bodies:
        record = resource_logs.scope_logs.add().log_records.add(time_unix_nano=MS, **fields)
        record.body.string_value = body
    return request


@dataclass(frozen=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    headers: dict[str, str]


def post(address: str, body: bytes, *, path: str = "/v1/traces", **headers: str) -> Answer:
    """Send a body over HTTP; keywords are headers with `_` for `-`."""
    named = {"Content-Type": PROTOBUF, **{name.replace("_", "-"): value for name, value in headers.items()}}
    request = urllib.request.Request(f"http://{address}{path}", data=body, headers=named)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, answer.read(), dict(answer.headers))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), dict(error.headers))


@dataclass
class RunningCollector:
    """A collector in another process."""

    process: subprocess.Popen[str]
    grpc: str
    http: str
    directory: Path
    run_dir: Path | None

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send it a signal; its exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        _, stderr = self.process.communicate(timeout=30)
        return self.process.returncode, stderr


def collect_command(directory: Path, *arguments: str) -> list[str]:
    """The command line of a collector on free ports."""
    ports = ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    return [sys.executable, "-m", "stepmeter.cli", "collect", "--dir", str(directory), *ports, "--json", *arguments]


@contextmanager
def collector_process(directory: Path, *arguments: str) -> Iterator[RunningCollector]:
    """Run `stepmeter collect` until the block ends."""
    process = subprocess.Popen(
        collect_command(directory, *arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise AssertionError(process.communicate()[1])
        ready = json.loads(line)
        run_dir = Path(ready["run_dir"]) if ready["run_dir"] else None
        yield RunningCollector(process, ready["grpc"], ready["http"], Path(ready["dir"]), run_dir)
    finally:
        process.kill()
        process.communicate()


def wait_until(condition: Any, timeout_s: float = 20.0) -> None:
    """Wait for something that another process does."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.05)
