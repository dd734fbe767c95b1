"""How OTLP bytes reach an exporter: by its own client, with its own headers, compression and timeout."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from stepmeter.telemetry.exporters import say_unreachable
from stepmeter.telemetry.guard import Guard

_RETRYABLE_GRPC = frozenset(
    {"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS", "RESOURCE_EXHAUSTED"}
)
_RETRYABLE_HTTP = frozenset({None, 429, 502, 503, 504})


class Delivery(Enum):
    """What became of a request."""

    SUCCESS = "taken"
    FAILURE = "not taken; it may be tried again"
    REFUSED = "refused for good"


def otlp_client(exporter: Any, guard: Guard) -> Callable[[bytes], Delivery] | None:
    """The way by which an exporter takes OTLP bytes.

    It is the exporter's own connection with its own headers, compression and timeout. The attributes are private; an
    exporter that lacks one gets the SDK's objects instead.

    Args:
        exporter: A span exporter.
        guard: Where an unreachable backend is said, once.

    Returns:
        A function that sends one serialised `ExportTraceServiceRequest`, or None for exporters that are not OTLP's.

    Source:
        OTLP specification, "Failures": which answers may be tried again.
    """
    if type(exporter) is GrpcExporter and _has(exporter, "_client", "_headers", "_timeout"):
        return lambda request: _send_grpc(exporter, request, guard)
    if type(exporter) is HttpExporter and _has(exporter, "_client"):
        return lambda request: _send_http(exporter, request, guard)
    return None


def _has(exporter: Any, *names: str) -> bool:
    return all(hasattr(exporter, name) for name in names)


def _send_grpc(exporter: Any, request: bytes, guard: Guard) -> Delivery:
    message = ExportTraceServiceRequest.FromString(request)
    try:
        exporter._client.Export(request=message, metadata=exporter._headers, timeout=exporter._timeout)  # noqa: SLF001
    except Exception as error:  # grpc.RpcError; and ValueError on a channel that was closed at exit
        say_unreachable(exporter, guard)
        code = error.code().name if hasattr(error, "code") else "CANCELLED"
        return Delivery.FAILURE if code in _RETRYABLE_GRPC else Delivery.REFUSED
    return Delivery.SUCCESS


def _send_http(exporter: Any, request: bytes, guard: Guard) -> Delivery:
    result = exporter._client.export(request)  # noqa: SLF001
    if result.success:
        return Delivery.SUCCESS
    say_unreachable(exporter, guard)
    return Delivery.FAILURE if result.status_code in _RETRYABLE_HTTP else Delivery.REFUSED
