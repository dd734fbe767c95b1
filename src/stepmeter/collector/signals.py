"""What differs between traces, metrics and logs once they are decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector import decode_logs, decode_metrics, decode_traces
from stepmeter.collector.decode import resource_facts
from stepmeter.collector.otlp import LOGS, METRICS, TRACES, Encoding, parse
from stepmeter.collector.wire import read_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from stepmeter.collector.decode import Rows, RunKey
    from stepmeter.collector.journal import Record
    from stepmeter.collector.otlp import Signal


@dataclass(frozen=True, slots=True)
class Content:
    """How to read a message of one signal.

    Attributes:
        parts: Name of the field with one part for each resource.
        reject: Counts the items that the store can't hold, with what is wrong with the first.
        read: Reads a valid request as `decode` wants it.
        decode: Turns what was read into rows.
        items: Counts the items of a part.
    """

    parts: str
    reject: Callable[[Any], tuple[int, str]]
    read: Callable[[bytes], Any]
    decode: Callable[[Any, RunKey, Rows], None]
    items: Callable[[Any], int]


def _spans(part: Any) -> int:
    return sum(len(scope.spans) for scope in part.scope_spans)


def _points(part: Any) -> int:
    return sum(len(list(decode_metrics.points(m))) for scope in part.scope_metrics for m in scope.metrics)


def _records(part: Any) -> int:
    return sum(len(scope.log_records) for scope in part.scope_logs)


CONTENTS: Final = {
    TRACES: Content("resource_spans", decode_traces.reject_spans, read_traces, decode_traces.decode_spans, _spans),
    METRICS: Content(
        "resource_metrics",
        decode_metrics.reject_points,
        METRICS.request.FromString,
        decode_metrics.decode_points,
        _points,
    ),
    LOGS: Content(
        "resource_logs", decode_logs.reject_records, LOGS.request.FromString, decode_logs.decode_records, _records
    ),
}


def read(record: Record) -> Any:
    """Read a request that was parsed before, and so is valid.

    Args:
        record: The request.

    Returns:
        What its signal's `decode` takes.
    """
    body = record.body
    if record.encoding is Encoding.JSON:
        body = parse(record.signal, record.encoding, body).SerializeToString()
    return CONTENTS[record.signal].read(body)


def runs_of(signal: Signal, message: Any, default_run: RunKey) -> set[RunKey]:
    """Which runs a message has telemetry for.

    Args:
        signal: Its signal.
        message: The request.
        default_run: The run of resources that name none.

    Returns:
        The runs.
    """
    parts = getattr(message, CONTENTS[signal].parts)
    return {resource_facts(part.resource).run or default_run for part in parts}


def items_of(signal: Signal, message: Any, default_run: RunKey, runs: Container[RunKey]) -> int:
    """Count the spans, data points or log records of some runs.

    Args:
        signal: Its signal.
        message: The request.
        default_run: The run of resources that name none.
        runs: The runs.

    Returns:
        Their number.
    """
    content = CONTENTS[signal]
    parts = getattr(message, content.parts)
    return sum(content.items(p) for p in parts if (resource_facts(p.resource).run or default_run) in runs)
