"""Where span records collect on their way to the exporters, as bytes for some and as objects for others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from stepmeter.telemetry.deliver import otlp_client
from stepmeter.telemetry.emit import SpanRecord
from stepmeter.telemetry.encode import SpanEncoder
from stepmeter.telemetry.exporters import hushed
from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.kept import KeptRequests
from stepmeter.telemetry.otlp_json import JsonLines
from stepmeter.telemetry.readable import readable
from stepmeter.telemetry.sender import Sender
from stepmeter.telemetry.user_spans import UserSpanEncoder, UserSpanRecord, readable_user_span

AnyRecord = SpanRecord | UserSpanRecord
SPANS_PER_REQUEST = 512
_SPANS_WAITING = 32_768


class SpanOutlet:
    """Turns records into requests and hands them to one sender an exporter.

    Args:
        exporters: The user's span exporters.
        resource: Of all spans.
        guard: Where losses are counted.
        lines: A file of JSON lines that takes everything as well, or None.
        kept: Takes the requests that an OTLP exporter does not deliver, or None.
    """

    def __init__(
        self,
        exporters: Iterable[Any],
        resource: Resource,
        guard: Guard,
        lines: JsonLines | None = None,
        kept: KeptRequests | None = None,
    ) -> None:
        self._resource = resource
        self._lines = lines
        self._guard = guard
        self._encoder = SpanEncoder(resource)
        self._user_encoder = UserSpanEncoder()
        self._records: list[AnyRecord] = []
        self._byte_senders: list[Sender] = []
        self._object_senders: list[Sender] = []
        for exporter in exporters:
            client = otlp_client(exporter, guard)
            if client is None:
                self._object_senders.append(Sender(exporter.export, "span", _SPANS_WAITING, guard))
            else:
                keep = None if kept is None else kept.keep
                self._byte_senders.append(Sender(hushed(client), "span", _SPANS_WAITING, guard, keep))

    def __len__(self) -> int:
        return len(self._records)

    @property
    def senders(self) -> Sequence[Sender]:
        """All senders."""
        return [*self._byte_senders, *self._object_senders]

    def add(self, records: Iterable[AnyRecord]) -> None:
        """Take records; a full request's worth leaves at once.

        Args:
            records: Finished spans.
        """
        self._records.extend(records)
        if len(self._records) >= SPANS_PER_REQUEST:
            self.flush()

    def flush(self) -> None:
        """Hand everything to the senders."""
        records, self._records = self._records, []
        for chunk in _chunks(records):
            lost = len(chunk)
            with self._guard.over("encoding spans"):
                self._hand_on(chunk)
                lost = 0
            self._guard.lost("span: not encoded", lost)

    def _hand_on(self, chunk: list[AnyRecord]) -> None:
        if self._lines is not None:
            self._lines.spans(chunk)
        if self._byte_senders:
            request = self._encoder.request([self._encode(record) for record in chunk], chunk[0])
            for sender in self._byte_senders:
                sender.put(request, len(chunk))
        if self._object_senders:
            spans = [self._readable(record) for record in chunk]
            for sender in self._object_senders:
                sender.put(spans, len(chunk))

    def _encode(self, record: AnyRecord) -> bytes:
        if isinstance(record, UserSpanRecord):
            return self._user_encoder.encode(record)
        return self._encoder.encode(record)

    def _readable(self, record: AnyRecord) -> ReadableSpan:
        if isinstance(record, UserSpanRecord):
            return readable_user_span(record, self._resource)
        return readable(record, self._resource)


def _chunks(records: list[AnyRecord]) -> Iterator[list[AnyRecord]]:
    for start in range(0, len(records), SPANS_PER_REQUEST):
        yield records[start : start + SPANS_PER_REQUEST]
