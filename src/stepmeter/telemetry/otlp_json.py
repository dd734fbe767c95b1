"""OTLP as JSON lines, as the OpenTelemetry Collector's file exporter writes them.

Written from records, since protobuf's own JSON writes ids in base64, which OTLP forbids.

Source:
    OTLP specification, "JSON Protobuf Encoding": ids are hexadecimal, 64-bit integers are strings, enums are numbers.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.sdk.resources import Resource

from stepmeter.telemetry.emit import SCOPE, SpanRecord
from stepmeter.telemetry.rows import LogRecord
from stepmeter.telemetry.user_spans import UserSpanRecord

_STATUS = {"UNSET": 0, "OK": 1, "ERROR": 2}
_INTERNAL = 1


class JsonLines:
    """Appends OTLP requests to a file, one a line; a line that was begun is whole or the last one.

    Args:
        path: The file; made with its directory when the first line comes.
        resource: Of all that is written.
    """

    def __init__(self, path: Path, resource: Resource) -> None:
        self._path = path
        self._resource = {"attributes": attributes_json(resource.attributes)}
        self._scope = {"name": SCOPE.name, "version": SCOPE.version or ""}
        self._descriptor: int | None = None

    def spans(self, records: Sequence[SpanRecord | UserSpanRecord]) -> None:
        """Write spans.

        Args:
            records: Finished spans.
        """
        self._write("resourceSpans", "scopeSpans", "spans", [span_json(record) for record in records])

    def logs(self, records: Sequence[LogRecord]) -> None:
        """Write log records.

        Args:
            records: The records.
        """
        self._write("resourceLogs", "scopeLogs", "logRecords", [log_json(record) for record in records])

    def metrics(self, data: Any) -> None:
        """Write metrics.

        Args:
            data: The SDK's `MetricsData`.
        """
        self._append(MessageToDict(encode_metrics(data)))

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, outer: str, inner: str, leaf: str, items: list[dict[str, Any]]) -> None:
        if items:
            scoped = {"scope": self._scope, "schemaUrl": SCOPE.schema_url or "", leaf: items}
            self._append({outer: [{"resource": self._resource, inner: [scoped]}]})

    def _append(self, request: Mapping[str, Any]) -> None:
        if self._descriptor is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        line = json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        while line:  # a signal or a full disk may cut a write short
            line = line[os.write(self._descriptor, line) :]


def span_json(record: SpanRecord | UserSpanRecord) -> dict[str, Any]:
    """Write one span.

    Args:
        record: A finished span.

    Returns:
        An OTLP `Span`.
    """
    span: dict[str, Any] = {
        "traceId": record.trace_id.hex(),
        "spanId": record.span_id.hex(),
        "name": record.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(record.start_ns),
        "endTimeUnixNano": str(record.end_ns),
        "attributes": attributes_json(record.facts),
    }
    if record.parent_id:
        span["parentSpanId"] = record.parent_id.hex()
    if isinstance(record, UserSpanRecord):
        if record.events:
            span["events"] = [
                {"name": name, "timeUnixNano": str(at_ns), "attributes": attributes_json(more)}
                for name, at_ns, more in record.events
            ]
        if record.links:
            span["links"] = [
                {"traceId": f"{link.trace_id:032x}", "spanId": f"{link.span_id:016x}"} for link in record.links
            ]
        if record.status[0] != "UNSET":
            span["status"] = {"code": _STATUS[record.status[0]], "message": record.status[1]}
    return span


def log_json(record: LogRecord) -> dict[str, Any]:
    """Write one log record.

    Args:
        record: The record.

    Returns:
        An OTLP `LogRecord`.
    """
    return {
        "timeUnixNano": str(record.time_ns),
        "observedTimeUnixNano": str(record.time_ns),
        "severityNumber": record.severity_number,
        "severityText": record.severity_text,
        "eventName": record.event,
        "body": {"stringValue": record.body},
        "attributes": attributes_json(record.facts),
    }


def attributes_json(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Write attributes.

    Args:
        values: Plain values by name; tuples and lists are arrays.

    Returns:
        OTLP `KeyValue`s.
    """
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value if math.isfinite(value) else _name(value)}
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": attributes_json(value)}}
    if isinstance(value, Iterable):
        return {"arrayValue": {"values": [_value(item) for item in value]}}
    return {}


def _name(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
