"""What OpenTelemetry asks of a span, so that ours can be current in its context like any other."""

# ruff: noqa: ARG002 - the parameters are OpenTelemetry's

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace import SpanContext, TraceFlags

from stepmeter.capture import recording
from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.failure import describe_exception
from stepmeter.capture.scope import OTEL_SPAN

Event = tuple[str, int, Mapping[str, Any]]
"""(name, moment on the monotonic clock in ns, attributes)."""

_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_NOT_SAMPLED: Final = TraceFlags(TraceFlags.DEFAULT)


class OtelSpan(trace.Span):
    """The OpenTelemetry side of `Span`; attributes are documented there."""

    __slots__ = (
        *("name", "attributes", "start_ns", "end_ns", "trace_id", "span_id", "parent_id", "sampled", "trace_state"),
        *("events", "links", "status", "outside"),
    )
    name: str
    attributes: dict[str, Any] | None
    start_ns: int
    end_ns: int
    trace_id: int
    span_id: int
    parent_id: int
    sampled: bool
    trace_state: Any
    events: list[Event] | None
    links: list[SpanContext] | None
    status: tuple[str, str] | None
    outside: Context

    @property
    def context(self) -> SpanContext:
        """Its own ids as W3C trace context, open or not."""
        flags = _SAMPLED if self.sampled else _NOT_SAMPLED
        return SpanContext(
            self.trace_id, self.span_id, is_remote=False, trace_flags=flags, trace_state=self.trace_state
        )

    def get_span_context(self) -> SpanContext:
        """The ids that a child takes: its own, or when it has ended those of the nearest span still open around it."""
        if not self.start_ns and not hasattr(self, "span_id"):
            return trace.INVALID_SPAN_CONTEXT
        if not self.end_ns:
            return self.context
        current: object = self.outside.get(OTEL_SPAN)
        return current.get_span_context() if isinstance(current, trace.Span) else trace.INVALID_SPAN_CONTEXT

    def is_recording(self) -> bool:
        """Whether what is set on it will be kept."""
        return bool(self.start_ns) and not self.end_ns

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes."""
        self._update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Add one attribute."""
        self._update({key: value})

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Add an event; `timestamp` is Unix time in ns, None = now."""
        at_ns = monotonic_ns() if timestamp is None else recording.current.anchor.monotonic_ns_of(timestamp)
        self.events = [*(self.events or ()), (name, at_ns, dict(attributes or {}))]

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """Link another span; attributes of links are not kept."""
        self.links = [*(self.links or ()), context]

    def update_name(self, name: str) -> None:
        """Rename it; its path, which its children have taken over, stays."""
        self.name = name

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Set the status: a `Status` or a `StatusCode`."""
        code = getattr(status, "status_code", status)
        self.status = (getattr(code, "name", "UNSET"), getattr(status, "description", None) or description or "")

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """Add an exception as an event."""
        _, (name, at_ns, described) = describe_exception(exception, monotonic_ns())
        self.events = [*(self.events or ()), (name, at_ns, {**described, **(attributes or {})})]

    def _update(self, attributes: Mapping[str, Any]) -> None:
        if self.attributes is None:
            self.attributes = {}
        self.attributes.update({str(key): value for key, value in attributes.items()})
