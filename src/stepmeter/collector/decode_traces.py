"""Spans to rows: a step of ours becomes a row of `steps`, every other span one of `spans`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector.decode import (
    MAX_TIME_NS,
    ResourceFacts,
    Row,
    Rows,
    RunKey,
    attributes_of,
    has_type,
    resource_facts,
    to_json,
    typed,
)
from stepmeter.conventions import SCOPE_NAME
from stepmeter.conventions import resource as names
from stepmeter.conventions.attributes import (
    ATTEMPT,
    PHASE,
    RANK,
    STEP,
    STEP_ATTRIBUTES,
    WORLD_SIZE,
)
from stepmeter.conventions.spans import STEP_SPAN
from stepmeter.store.schema import RESOURCES, SPANS, STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS: Final = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_STATUSES: Final = ("Unset", "Ok", "Error")
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8

_STEP_COLUMNS: Final = {
    attribute.key: (STEPS.column_names.index(attribute.column), attribute)
    for attribute in STEP_ATTRIBUTES
    if attribute.column
}
_DEFAULTS: Final = {ATTEMPT.key: 0, RANK.key: 0, WORLD_SIZE.key: 1}
"""What a process without a launcher is: the first attempt, rank 0 of 1."""
_FROM_RESOURCE: Final = tuple(
    (*_STEP_COLUMNS[attribute.key], _DEFAULTS.get(attribute.key))
    for attribute in names.RESOURCE_ATTRIBUTES
    if attribute.key in _STEP_COLUMNS
)
_FACTS: Final = 1 + len(_STEP_COLUMNS)
"""Columns of `steps` before those that are no attributes."""


def reject_spans(message: Any) -> tuple[int, str]:
    """Count the spans of a request that the store can't hold.

    Args:
        message: An `ExportTraceServiceRequest`.

    Returns:
        Their number, and what is wrong with the first of them.
    """
    problems = [problem for _, _, span in _spans(message) if (problem := _problem(span))]
    return len(problems), problems[0] if problems else ""


def decode_spans(message: Any, default_run: RunKey, rows: Rows) -> None:
    """Turn the spans of a request into rows; those that `reject_spans` counts are left out.

    Args:
        message: An `ExportTraceServiceRequest`.
        default_run: The run of resources that name none.
        rows: Where the rows go.
    """
    for resource_spans in message.resource_spans:
        facts = resource_facts(resource_spans.resource)
        run = facts.run or default_run
        rows.of(run, RESOURCES).append((run.run_id, *facts.row))
        steps, spans = rows.of(run, STEPS), rows.of(run, SPANS)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope
            ours = scope.name == SCOPE_NAME
            for span in scope_spans.spans:
                if _problem(span):
                    continue
                attributes = attributes_of(span.attributes)
                if ours and span.name == STEP_SPAN.name and has_type(attributes.get(STEP.key), STEP):
                    steps.append(_step_row(run, facts, span, attributes))
                else:
                    spans.append(_span_row(run, facts, scope, span, attributes))


def _spans(message: Any) -> Iterator[tuple[Any, Any, Any]]:
    for resource_spans in message.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield resource_spans, scope_spans, span


def _problem(span: Any) -> str | None:
    if len(span.trace_id) != _TRACE_ID_BYTES or len(span.span_id) != _SPAN_ID_BYTES:
        return f"span with ids of {len(span.trace_id)} and {len(span.span_id)} bytes, expected 16 and 8"
    if span.start_time_unix_nano > MAX_TIME_NS or span.end_time_unix_nano > MAX_TIME_NS:
        return "span with a time after the year 2262"
    return None


def _step_row(run: RunKey, facts: ResourceFacts, span: Any, attributes: dict[str, Any]) -> Row:
    row: list[Any] = [None] * _FACTS
    row[0] = run.run_id
    rest = {}
    for key, value in attributes.items():
        column = _STEP_COLUMNS.get(key)
        if column is not None and has_type(value, column[1]):
            row[column[0]] = value
        else:
            rest[key] = value
    # what the resource knew at start counts only where the span says nothing
    for index, attribute, default in _FROM_RESOURCE:
        if row[index] is None:
            at_start = typed(facts.attributes, attribute)
            row[index] = default if at_start is None else at_start
    return (
        *row,
        typed(facts.attributes, names.HOST_NAME),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.trace_id.hex(),
        span.span_id.hex(),
        facts.resource_id,
        to_json(rest),
    )


def _span_row(run: RunKey, facts: ResourceFacts, scope: Any, span: Any, attributes: dict[str, Any]) -> Row:
    status = span.status
    return (
        run.run_id,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex() or None,
        span.trace_state or None,
        span.name,
        _name_of(_KINDS, span.kind),
        facts.service_name,
        scope.name or None,
        scope.version or None,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _name_of(_STATUSES, status.code),
        status.message or None,
        _take(attributes, RANK, facts.attributes),
        _take(attributes, STEP, {}),
        _take(attributes, PHASE, {}),
        to_json([_event(event) for event in span.events]),
        to_json([_link(link) for link in span.links]),
        facts.resource_id,
        to_json(attributes),
    )


def _take(attributes: dict[str, Any], attribute: Any, otherwise: dict[str, Any]) -> Any:
    """Move an attribute into its column; one of a wrong type stays where it is."""
    if has_type(attributes.get(attribute.key), attribute):
        return attributes.pop(attribute.key)
    return typed(otherwise, attribute)


def _name_of(known: tuple[str, ...], number: int) -> str:
    return known[number] if 0 <= number < len(known) else known[0]


def _event(event: Any) -> dict[str, Any]:
    return {"time_ns": event.time_unix_nano, "name": event.name, "attributes": attributes_of(event.attributes)}


def _link(link: Any) -> dict[str, Any]:
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "attributes": attributes_of(link.attributes),
    }
