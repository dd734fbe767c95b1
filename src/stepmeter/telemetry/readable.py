"""Span records as the SDK's own objects, for exporters that are not OTLP."""

from __future__ import annotations

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from stepmeter.telemetry.emit import SCOPE, SpanRecord
from stepmeter.telemetry.user_spans import UserSpanRecord

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def readable(record: SpanRecord | UserSpanRecord, resource: Resource) -> ReadableSpan:
    """Make the SDK's object of a record.

    Args:
        record: A finished span.
        resource: Whose it is.

    Returns:
        A finished, sampled span of our scope.
    """
    trace_id = int.from_bytes(record.trace_id, "big")
    return ReadableSpan(
        name=record.name,
        context=_context(trace_id, record.span_id),
        parent=_context(trace_id, record.parent_id) if record.parent_id else None,
        resource=resource,
        attributes=record.facts,
        kind=SpanKind.INTERNAL,
        start_time=record.start_ns,
        end_time=record.end_ns,
        instrumentation_scope=SCOPE,
    )


def _context(trace_id: int, span_id: bytes) -> SpanContext:
    return SpanContext(trace_id, int.from_bytes(span_id, "big"), is_remote=False, trace_flags=_SAMPLED)
