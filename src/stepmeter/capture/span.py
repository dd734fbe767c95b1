"""User spans: what `stepmeter.span` makes, how spans nest, and how they end.

A span is an OpenTelemetry span of its own kind: light enough for the hot path, with real ids, and current in the
OpenTelemetry context, so that the spans of other instrumentations become its children. The SDK's objects cost 13 µs
each; these are made into records by the drain thread.
"""

# ruff: noqa: SLF001 - spans look at one another

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Final, TypeVar

from opentelemetry import trace
from opentelemetry.context.context import Context
from opentelemetry.trace import TraceFlags

from stepmeter.capture import recording
from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.decorating import timed
from stepmeter.capture.failure import describe_exception
from stepmeter.capture.otel_context import attach, get_current
from stepmeter.capture.otel_span import OtelSpan
from stepmeter.capture.printing import Printer, print_end, print_start
from stepmeter.capture.scope import OTEL_SPAN, OURS, STEP_SCOPE

Function = TypeVar("Function", bound=Callable[..., Any])
INHERIT: Final[Any] = object()
"""Stands for a handler or plugins that are those of the span around."""

_lane = threading.local()


class Span(OtelSpan):
    """A timed part of a program: a context manager, an async one, a decorator, or started and ended by hand.

    It may be entered again, also while it is open; each time is a span of its own.

    Attributes:
        name: Its own name, without slashes around it.
        path: The names of the spans around it and its own, joined with `/`.
        depth: How many spans are around it.
        attributes: What describes it, as the program gave it.
        metrics: What plugins measured, once it has ended.
        error: Class of the exception that ended it; None for none.
        start_ns: Start on the monotonic clock; 0 before.
        end_ns: End on the monotonic clock; 0 before.
        step: Step that it belongs to; None when nothing counts steps.
        training_step: The training step in which it ended, found by the drain; None for none.
        parent: The span of ours around it, or None.
        outside: The OpenTelemetry context around it.
        encoded: What describes it and what plugins measured as plain values, once it has ended.
        events: What happened in it, or None.
        links: Spans that it links, or None.
        status: (UNSET, OK or ERROR; description), or None.
        lane: (id, name) of the thread in which it started.
    """

    __slots__ = (
        *(
            "name",
            "path",
            "depth",
            "attributes",
            "metrics",
            "error",
            "start_ns",
            "end_ns",
            "step",
            "training_step",
            "plugins",
            "printer",
        ),
        *("trace_id", "span_id", "parent_id", "sampled", "trace_state", "lane", "events", "links", "status", "encoded"),
        *("parent", "_print_fn", "_plugins", "_origin", "_entered", "_scope"),
    )

    def __init__(
        self, name: str, attributes: dict[str, Any] | None = None, print_fn: Any = INHERIT, plugins: Any = INHERIT
    ) -> None:
        self.name = name
        self.attributes = attributes
        self._print_fn, self._plugins = print_fn, plugins
        self._origin: Span | None = None
        self._entered = 0
        self.start_ns = self.end_ns = 0
        self.metrics: dict[str, Any] | None = None
        self.error: str | None = None
        self.events = None
        self.links = None
        self.status = None
        self.training_step: int | None = None
        self.encoded: dict[str, Any] | None = None

    # ── what a program does ─────────────────────────────────────────────────────────────────────────────────────

    def set(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> Span:
        """Add attributes.

        Args:
            values: Attributes under any names.
            **more: Attributes whose names are identifiers.

        Returns:
            The span itself.
        """
        self._update({**(values or {}), **more})
        return self

    def end(self, end_time: int | None = None, error: BaseException | None = None) -> float:  # type: ignore[override] # ours returns
        """End the span, from any thread; a second time changes nothing.

        Args:
            end_time: Unix time in ns, for callers of OpenTelemetry's interface; None = now.
            error: The exception that ended it, or None.

        Returns:
            Its duration in ms; 0 for a span that was never started.
        """
        if self.start_ns and not self.end_ns:
            end_ns = monotonic_ns()
            if type(end_time) is int:
                end_ns = max(self.start_ns, recording.current.anchor.monotonic_ns_of(end_time))
            self._close(end_ns, error)
        return self.duration_ms

    @property
    def duration_ms(self) -> float:
        """From start to end in ms; 0 for a span that has not ended."""
        return (self.end_ns - self.start_ns) / 1e6 if self.end_ns else 0.0

    def __call__(self, function: Function) -> Function:
        """Decorate a function; each call is a span of its own."""
        return timed(function, self.fresh)

    def __enter__(self) -> Span:  # noqa: PYI034 - entered again, it gives another
        span = self
        if self.start_ns:  # again: a span of its own, found at the exit by where it came from
            span = self.fresh()
            span._origin = self
            self._entered += 1
        span.start()
        return span

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_back: TracebackType | None
    ) -> None:
        end_ns = monotonic_ns()
        span = self if not self._entered else self._innermost()
        if not span.end_ns:
            span._close(end_ns, error)

    async def __aenter__(self) -> Span:  # noqa: PYI034 - entered again, it gives another
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_back: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace_back)

    # ── how it begins and ends ──────────────────────────────────────────────────────────────────────────────────

    def fresh(self) -> Span:
        """Another span of the same name, attributes, handler and plugins, not started."""
        attributes = None if self.attributes is None else dict(self.attributes)
        return Span(self.name, attributes, self._print_fn, self._plugins)

    def start(self) -> Span:
        """Start it and make it current; the clock starts last.

        Returns:
            The span itself.
        """
        recorder = recording.current
        context = outside = get_current()
        current = context.get(OTEL_SPAN)
        parent: Span | None = context.get(OURS)  # type: ignore[assignment] # the context is untyped
        while parent is not None and parent.end_ns:  # ended out of order or by another thread
            outside = parent.outside
            parent = outside.get(OURS)  # type: ignore[assignment]
        self.parent, self.outside = parent, outside
        self.span_id = recorder.random_bits(64) or 1
        if current is not parent:
            self._adopt(current, recorder)
        elif parent is not None:
            self.trace_id, self.parent_id = parent.trace_id, parent.span_id
            self.sampled, self.trace_state = parent.sampled, parent.trace_state
        else:
            self._begin_trace(recorder)
        print_fn, plugins = self._print_fn, self._plugins
        if parent is None:
            self.path, self.depth = self.name, 0
            self.printer: Printer | None = recorder.printer if print_fn is INHERIT else Printer.of(print_fn, 0)
            self.plugins = recorder.plugins if plugins is INHERIT else plugins
        else:
            self.path, self.depth = f"{parent.path}/{self.name}", parent.depth + 1
            self.printer = parent.printer if print_fn is INHERIT else Printer.of(print_fn, self.depth)
            self.plugins = parent.plugins if plugins is INHERIT else plugins
        scope = self._scope = context.get(STEP_SCOPE)
        self.step: int | None = scope.step if scope is not None else None  # type: ignore[attr-defined]
        try:
            self.lane: tuple[int, str] = _lane.of_thread
        except AttributeError:
            self.lane = _lane.of_thread = (threading.get_ident(), threading.current_thread().name)
        attach(Context({**context, OURS: self, OTEL_SPAN: self}))
        if self.plugins:
            recorder.measuring.begin(self)
        if self.printer is not None:
            print_start(self, recorder)
        self.start_ns = monotonic_ns()
        return self

    def _begin_trace(self, recorder: recording.SpanRecorder) -> None:
        self.trace_id, self.parent_id, self.trace_state = recorder.random_bits(128) or 1, 0, None
        decide = recorder.decide  # as the SDK's default does, roots are all sampled
        self.sampled = True if decide is None else decide(None, self.trace_id, self.name)

    def _adopt(self, current: object, recorder: recording.SpanRecorder) -> None:
        """Take the ids from another library's span."""
        around = current.get_span_context() if isinstance(current, trace.Span) else None
        if around is None or not around.is_valid:
            self._begin_trace(recorder)
            return
        self.trace_id, self.parent_id, self.trace_state = around.trace_id, around.span_id, around.trace_state
        if recorder.decide is not None:
            self.sampled = recorder.decide(around, self.trace_id, self.name)
        else:  # as the SDK's default does, children follow
            self.sampled = bool(around.trace_flags & TraceFlags.SAMPLED)

    def _close(self, end_ns: int, error: BaseException | None) -> None:
        self.end_ns = end_ns
        recorder = recording.current
        if error is not None:
            self.error, event = describe_exception(error, end_ns)
            self.events = [*(self.events or ()), event]
        if self.plugins:
            recorder.measuring.end(self)
        if get_current().get(OURS) is self:
            outside, around = self.outside, self.parent
            while around is not None and around.end_ns:  # it was ended from elsewhere meanwhile
                outside, around = around.outside, around.parent
            attach(outside)
        if recorder.recording:
            recorder.record(self, self._scope)
        if self.printer is not None:
            print_end(self, recorder)

    def _innermost(self) -> Span:
        """The innermost open span that entering this one made in the present context."""
        span: Span | None = get_current().get(OURS)  # type: ignore[assignment]
        while span is not None:
            if not span.end_ns and (span is self or span._origin is self):
                return span
            span = span.parent
        return self
