"""User spans on the drain thread: as protobuf bytes, as the SDK's objects, as OTLP JSON, and into the histogram."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags, Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, TraceFlags
from opentelemetry.trace import Status as ApiStatus

from stepmeter.capture.clock import ClockAnchor
from stepmeter.capture.span import Span
from stepmeter.capture.value import finite
from stepmeter.conventions import attributes as words
from stepmeter.telemetry.emit import SCOPE

_FIELDS = {bool: "bool_value", int: "int_value", float: "double_value", str: "string_value"}
_CODES = {"UNSET": Status.STATUS_CODE_UNSET, "OK": Status.STATUS_CODE_OK, "ERROR": Status.STATUS_CODE_ERROR}
_TEMPLATES = 512
_TRACE_ID_BYTES, _SPAN_ID_BYTES = 16, 8


class UserSpanRecord(NamedTuple):
    """A finished user span, in Unix time.

    Attributes:
        name: Its path's last part, or what it was renamed to.
        trace_id: 16 bytes.
        span_id: 8 bytes.
        parent_id: 8 bytes, or empty for a root.
        start_ns: Unix time in ns.
        end_ns: Unix time in ns.
        facts: Its attributes: plain values, lists and mappings of them.
        events: (name, Unix time in ns, attributes).
        links: Spans that it links.
        status: (UNSET, OK or ERROR; description).
        trace_state: W3C trace state, or None.
    """

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start_ns: int
    end_ns: int
    facts: dict[str, Any]
    events: tuple[tuple[str, int, Mapping[str, Any]], ...] = ()
    links: tuple[SpanContext, ...] = ()
    status: tuple[str, str] = ("UNSET", "")
    trace_state: Any = None


class SpanWriter:
    """Makes records of finished spans.

    Args:
        anchor: Places monotonic times on the wall axis.
        common: Attributes of every span: rank, stream, attempt.
        step_context: Gives the context of a training step's span, which spans outside of its trace link.
    """

    def __init__(
        self, anchor: ClockAnchor, common: Mapping[str, Any], step_context: Callable[[int], SpanContext]
    ) -> None:
        self._unix_ns_of = anchor.unix_ns_of
        self._common = dict(common)
        self._step_context = functools.lru_cache(8)(step_context)

    def record(self, span: Span) -> UserSpanRecord:
        """Make the record of one span.

        Args:
            span: It has ended.

        Returns:
            Its record.
        """
        thread_id, thread_name = span.lane
        facts: dict[str, Any] = {
            **(finite(span.encoded) if span.encoded else {}),
            words.SPAN_PATH.key: span.path,
            words.THREAD_ID.key: thread_id,
            words.THREAD_NAME.key: thread_name,
            **self._common,
        }
        training_step = span.training_step
        step = training_step if span.step is None else span.step
        if step is not None:
            facts[words.STEP.key] = step
        status = span.status or ("UNSET", "")
        if span.error is not None:
            facts[words.ERROR_TYPE.key] = span.error
            status = ("ERROR", status[1])
        links = tuple(span.links or ())
        if training_step is not None and not span.parent_id:
            links += (self._step_context(training_step),)
        unix_ns_of = self._unix_ns_of
        return UserSpanRecord(
            span.name,
            span.trace_id.to_bytes(_TRACE_ID_BYTES, "big"),
            span.span_id.to_bytes(_SPAN_ID_BYTES, "big"),
            span.parent_id.to_bytes(_SPAN_ID_BYTES, "big") if span.parent_id else b"",
            unix_ns_of(span.start_ns),
            unix_ns_of(span.end_ns),
            facts,
            tuple((name, unix_ns_of(at_ns), finite(dict(more))) for name, at_ns, more in span.events or ()),
            links,
            status,
            span.trace_state,
        )


class UserSpanEncoder:
    """Encodes records; spans of the same attributes share one message, in which the values are set anew."""

    def __init__(self) -> None:
        self._templates: dict[tuple[Any, ...], tuple[SpanMessage, list[tuple[Any, str]]]] = {}

    def encode(self, record: UserSpanRecord) -> bytes:
        """Encode one span.

        Args:
            record: The span.

        Returns:
            A serialised `opentelemetry.proto.trace.v1.Span`.
        """
        facts = record.facts
        key = (len(record.links), *facts, *map(type, facts.values()))
        if record.events or record.status[0] != "UNSET" or not _FIELDS.keys() >= {*map(type, facts.values())}:
            return _message(record).SerializeToString()
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= _TEMPLATES:
                self._templates.clear()
            span = SpanMessage(
                kind=SpanMessage.SPAN_KIND_INTERNAL,
                attributes=[KeyValue(key=name) for name in facts],
                links=[SpanMessage.Link(flags=SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK) for _ in record.links],
                status=Status(),
                flags=SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK,
            )
            fields = [_FIELDS[type(value)] for value in facts.values()]
            template = span, [(each.value, field) for each, field in zip(span.attributes, fields, strict=True)]
            self._templates[key] = template
        span, slots = template
        _head(span, record)
        for (slot, field), value in zip(slots, facts.values(), strict=True):
            setattr(slot, field, value)
        for message, link in zip(span.links, record.links, strict=True):
            message.trace_id = link.trace_id.to_bytes(_TRACE_ID_BYTES, "big")
            message.span_id = link.span_id.to_bytes(_SPAN_ID_BYTES, "big")
        return span.SerializeToString()


def any_value(value: Any) -> AnyValue:
    """Write a plain value as protobuf.

    Args:
        value: A plain value, list or mapping.

    Returns:
        The message; empty for None.
    """
    if value is None:
        return AnyValue()
    if isinstance(value, list):
        return AnyValue(array_value=ArrayValue(values=[any_value(item) for item in value]))
    if isinstance(value, dict):
        return AnyValue(kvlist_value=KeyValueList(values=key_values(value)))
    return AnyValue(**{_FIELDS[type(value)]: value})


def key_values(values: Mapping[str, Any]) -> list[KeyValue]:
    """Write attributes as protobuf.

    Args:
        values: Plain values by name.

    Returns:
        The messages.
    """
    return [KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def readable_user_span(record: UserSpanRecord, resource: Resource) -> ReadableSpan:
    """Make the SDK's object of a record, for exporters that are not OTLP.

    Args:
        record: The span.
        resource: Whose it is.

    Returns:
        A finished span of our scope.
    """
    trace_id = int.from_bytes(record.trace_id, "big")
    return ReadableSpan(
        name=record.name,
        context=_context(trace_id, record.span_id, record.trace_state),
        parent=_context(trace_id, record.parent_id, record.trace_state) if record.parent_id else None,
        resource=resource,
        attributes=record.facts,
        events=[Event(name, dict(more), at_ns) for name, at_ns, more in record.events],
        links=[Link(context) for context in record.links],
        kind=SpanKind.INTERNAL,
        status=ApiStatus(StatusCode[record.status[0]], record.status[1] or None)
        if record.status[0] == "ERROR"
        else ApiStatus(StatusCode[record.status[0]]),
        start_time=record.start_ns,
        end_time=record.end_ns,
        instrumentation_scope=SCOPE,
    )


def _message(record: UserSpanRecord) -> SpanMessage:
    span = SpanMessage(
        kind=SpanMessage.SPAN_KIND_INTERNAL,
        attributes=key_values(record.facts),
        status=Status(code=_CODES[record.status[0]], message=record.status[1]),
        flags=SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK,
        events=[
            SpanMessage.Event(name=name, time_unix_nano=at_ns, attributes=key_values(more))
            for name, at_ns, more in record.events
        ],
        links=[
            SpanMessage.Link(
                trace_id=link.trace_id.to_bytes(_TRACE_ID_BYTES, "big"),
                span_id=link.span_id.to_bytes(_SPAN_ID_BYTES, "big"),
                flags=SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK,
            )
            for link in record.links
        ],
    )
    _head(span, record)
    return span


def _head(span: SpanMessage, record: UserSpanRecord) -> None:
    span.name = record.name
    span.trace_id, span.span_id, span.parent_span_id = record.trace_id, record.span_id, record.parent_id
    span.start_time_unix_nano, span.end_time_unix_nano = record.start_ns, record.end_ns
    span.trace_state = record.trace_state.to_header() if record.trace_state else ""


def _context(trace_id: int, span_id: bytes, trace_state: Any) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(
        trace_id, int.from_bytes(span_id, "big"), is_remote=False, trace_flags=flags, trace_state=trace_state
    )
