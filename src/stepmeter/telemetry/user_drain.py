"""The drain of what the program itself recorded: spans, rows, alerts."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from opentelemetry import _logs as logs_api
from opentelemetry import trace as trace_api
from opentelemetry._logs import LogRecord as SdkLogRecord
from opentelemetry._logs import SeverityNumber
from opentelemetry.context.context import Context
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk.trace import TracerProvider, sampling

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.outbox import Outbox
from stepmeter.capture.recording import Decide
from stepmeter.capture.step import Recorder, StepTimeBatch
from stepmeter.capture.step_context import step_span_context
from stepmeter.conventions import attributes as words
from stepmeter.conventions import metrics
from stepmeter.telemetry import emit
from stepmeter.telemetry.aggregate import Aggregator, Distribution
from stepmeter.telemetry.exporters import hushed, say_unreachable, span_exporters
from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.otlp_json import JsonLines
from stepmeter.telemetry.outlet import SpanOutlet
from stepmeter.telemetry.placing import Placing
from stepmeter.telemetry.rows import LogRecord, RowMetrics, alert_record, row_record, rule_record
from stepmeter.telemetry.sender import Sender
from stepmeter.telemetry.user_spans import SpanWriter, UserSpanRecord, readable_user_span
from stepmeter.units import seconds

MAX_PATHS = 1000
"""Paths with a histogram of their own."""

_OTHER = "other"
_RECORDS_WAITING = 4096


class UserDrain:
    """Empties one outbox; lives on the drain thread.

    Args:
        outbox: What the program recorded.
        origin: Whose it is.
        aggregator: The process's series.
        guard: Where losses are counted.
        recorder: The process's steps.
    """

    def __init__(
        self, outbox: Outbox, origin: emit.Origin, aggregator: Aggregator, guard: Guard, recorder: Recorder
    ) -> None:
        rank = recorder.identity.rank
        self._outbox = outbox
        self._origin = origin
        self._aggregator = aggregator
        self._guard = guard
        self._base = (("rank", rank), ("run", origin.run_name))
        self._rank = rank
        self._recorder = recorder
        self._placing = Placing(lambda: "torch" in sys.modules)
        self._row_metrics = RowMetrics(aggregator)
        self._durations: dict[str, Distribution] = {}
        self._processors = extra_processors(trace_api.get_tracer_provider())
        self._senders: list[Sender] | None = None
        self._lines = JsonLines(outbox.lines, origin.resource) if outbox.lines else None
        self._kept = JsonLines(outbox.kept, origin.resource) if outbox.kept else None
        outbox.spans.decide = sampler_decision(trace_api.get_tracer_provider())

    @property
    def lines(self) -> JsonLines | None:
        """The file that takes everything, or None."""
        return self._lines

    @property
    def senders(self) -> list[Sender]:
        """Senders of log records."""
        return self._senders or []

    def drain(self, outlet: SpanOutlet, batches: Sequence[StepTimeBatch], *, hold: bool) -> None:
        """Take what waits: spans to the outlet, rows and alerts to the log exporters.

        Args:
            outlet: Where spans go.
            batches: Training steps that completed meanwhile.
            hold: Whether spans may wait for the end of their step.
        """
        outbox, common = self._outbox, {words.RANK.key: self._rank, **self._outbox.common}
        finished = outbox.spans.drain()
        for span in finished:
            self._duration(span.path, span.end_ns - span.start_ns)
        self._placing.saw(batches)
        spans = self._placing.place(finished, monotonic_ns(), hold=hold)
        if spans and outbox.spans.keep:
            writer = SpanWriter(self._origin.anchor, common, self._step_context)
            records = [writer.record(span) for span in spans if span.sampled]
            outlet.add(records)
            self._tell_processors(records)
        rows = outbox.rows.drain()
        for row in rows:
            self._row_metrics.record(row, self._base)
        now_ns = self._origin.anchor.unix_ns_of(monotonic_ns())
        records_of_logs = [rule_record(now_ns, rule, common) for rule in outbox.rules.drain()]
        records_of_logs += [row_record(row, common) for row in rows]
        records_of_logs += [alert_record(*alert, common) for alert in outbox.alerts.drain()]
        if records_of_logs:
            self._send(records_of_logs)
        if rows and outbox.on_rows is not None:
            outbox.on_rows(max(row.step for row in rows))

    def losses(self) -> dict[str, int]:
        """What the outbox lost so far.

        Returns:
            Items by kind.
        """
        return {**self._outbox.spans.dropped, "row: queue full": self._outbox.rows.dropped}

    def close(self) -> None:
        """Keep as lines what no backend took in time, and let go of the files."""
        if self._kept is not None:
            for sender in self._senders or ():
                for records in sender.undelivered():
                    self._kept.logs(records)
        for lines in (self._lines, self._kept):
            if lines is not None:
                lines.close()

    def _step_context(self, step: int) -> trace_api.SpanContext:
        return step_span_context(self._origin.run_id, self._recorder.identity, step)

    def _duration(self, path: str, duration_ns: int) -> None:
        series = self._durations.get(path)
        if series is None:
            known = path if len(self._durations) < MAX_PATHS else _OTHER
            series = self._aggregator.distribution(metrics.SPAN_DURATION, (*self._base, ("path", known)))
            if known is path or _OTHER not in self._durations:
                self._durations[known] = series
        series.record(seconds(duration_ns))

    def _tell_processors(self, records: Iterable[UserSpanRecord]) -> None:
        if not self._processors:
            return
        for record in records:
            span = readable_user_span(record, self._origin.resource)
            for processor in self._processors:
                with self._guard.over("a span processor"):
                    processor.on_end(span)

    def _send(self, records: list[LogRecord]) -> None:
        if self._lines is not None:
            self._lines.logs(records)
            return
        if self._senders is None:
            self._senders = [
                Sender(self._delivery(exporter), "row", _RECORDS_WAITING, self._guard) for exporter in log_exporters()
            ]
        for sender in self._senders:
            sender.put(records, len(records))
        if not self._senders and self._kept is not None:
            self._kept.logs(records)

    def _delivery(self, exporter: Any) -> Callable[[list[LogRecord]], Any]:
        export = hushed(exporter.export)

        def deliver(records: list[LogRecord]) -> Any:
            result = export([_sdk_record(record, self._origin) for record in records])
            if getattr(result, "name", "SUCCESS") == "SUCCESS" or self._kept is None:
                return result
            say_unreachable(exporter, self._guard)
            self._kept.logs(records)
            return None

        return deliver


def log_exporters() -> list[Any]:
    """What takes log records: the user's log exporters, else one beside each OTLP span exporter.

    Returns:
        Exporters of the SDK's interface.
    """
    provider = logs_api.get_logger_provider()
    if isinstance(provider, LoggerProvider):
        found = _exporters_of(provider)
        if found:
            return found
    return [made for each in span_exporters(trace_api.get_tracer_provider()) if (made := _beside(each)) is not None]


def sampler_decision(provider: object) -> Decide | None:
    """How the user's sampler decides about user spans.

    Args:
        provider: Any tracer provider.

    Returns:
        A question to ask at each root; None where the parent's decision is followed and roots are all sampled.
    """
    sampler = provider.sampler if isinstance(provider, TracerProvider) else None
    if sampler is None or sampler in (sampling.DEFAULT_ON, sampling.ALWAYS_ON):
        return None

    def decide(parent: trace_api.SpanContext | None, trace_id: int, name: str) -> bool:
        context = Context()  # of no parent: None would be what is current
        if parent is not None:
            context = trace_api.set_span_in_context(trace_api.NonRecordingSpan(parent), context)
        return sampler.should_sample(context, trace_id, name).decision is not sampling.Decision.DROP

    return decide


def extra_processors(provider: object) -> list[Any]:
    """The span processors that have no exporter of their own, such as those that count or filter.

    Args:
        provider: Any tracer provider.

    Returns:
        The processors; empty for a provider that is not the SDK's.
    """
    if not isinstance(provider, TracerProvider):
        return []
    processors = getattr(provider._active_span_processor, "_span_processors", ())  # noqa: SLF001 - no public way
    return [processor for processor in processors if not hasattr(processor, "span_exporter")]


def _exporters_of(provider: LoggerProvider) -> list[Any]:
    processor = getattr(provider, "_multi_log_record_processor", None)
    each = getattr(processor, "_log_record_processors", ())
    return [found for part in each if (found := _exporter_of(part)) is not None]


def _exporter_of(processor: Any) -> Any:
    batching = getattr(processor, "_batch_processor", processor)
    return getattr(batching, "_exporter", None)


def _beside(exporter: Any) -> Any:
    """The log exporter that belongs beside an OTLP span exporter."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans

    endpoint = getattr(exporter, "_endpoint", None)
    if isinstance(exporter, GrpcSpans):
        from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs

        return GrpcLogs(endpoint=endpoint, insecure=getattr(exporter, "_insecure", None), timeout=_timeout(exporter))
    if isinstance(exporter, HttpSpans):
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs

        logs_endpoint = None if endpoint is None else endpoint.replace("/v1/traces", "/v1/logs")
        return HttpLogs(endpoint=logs_endpoint, headers=getattr(exporter, "_headers", None), timeout=_timeout(exporter))
    return None


def _timeout(exporter: Any) -> float | None:
    return getattr(exporter, "_timeout", None)


def _sdk_record(record: LogRecord, origin: emit.Origin) -> ReadableLogRecord:
    log = SdkLogRecord(
        timestamp=record.time_ns,
        observed_timestamp=time.time_ns(),
        severity_number=SeverityNumber(record.severity_number),
        severity_text=record.severity_text,
        body=record.body or None,
        attributes=record.facts,
        event_name=record.event,
    )
    return ReadableLogRecord(log, origin.resource, emit.SCOPE)
