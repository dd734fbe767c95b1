"""Spans to rows: a step of ours becomes a row of `steps`, every other span one of `spans`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from stepmeter.collector import step_columns
from stepmeter.collector.decode import (
    MAX_TIME_NS,
    ResourceFacts,
    Row,
    Rows,
    RunKey,
    any_value,
    attributes_of,
    facts_of_bytes,
    take,
    to_json,
    typed,
)
from stepmeter.collector.wire import prefix_of, read_span
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
    from collections.abc import Sequence

_KINDS: Final = ("Unspecified", "Internal", "Server", "Client", "Producer", "Consumer")
_STATUSES: Final = ("Unset", "Ok", "Error")
_TRACE_ID_BYTES: Final = 16
_SPAN_ID_BYTES: Final = 8

_FIELDS: Final = {"int": "int_value", "double": "double_value", "string": "string_value", "boolean": "bool_value"}
_STEP_COLUMNS: Final = {
    attribute.key: (STEPS.column_names.index(attribute.column), _FIELDS[attribute.type])
    for attribute in STEP_ATTRIBUTES
    if attribute.column
}
_DEFAULTS: Final = {ATTEMPT.key: 0, RANK.key: 0, WORLD_SIZE.key: 1}
"""What a process without a launcher is: the first attempt, rank 0 of 1."""
_FROM_RESOURCE: Final = tuple(
    (_STEP_COLUMNS[attribute.key][0], attribute, _DEFAULTS.get(attribute.key))
    for attribute in names.RESOURCE_ATTRIBUTES
    if attribute.key in _STEP_COLUMNS
)
_STEP_INDEX: Final = STEPS.column_names.index("step")
_BY_RANK: Final = frozenset(STEPS.column_names.index(name) for name in ("attempt", "rank"))
_STEADY: Final = frozenset(
    attribute.key for attribute in STEP_ATTRIBUTES if attribute.unit not in {"ns", "By", "{step}", "{token}"}
)
"""Attributes of a step that seldom change from one to the next."""
_INTEGERS: Final = {
    prefix_of(attribute.key): _STEP_COLUMNS[attribute.key][0]
    for attribute in STEP_ATTRIBUTES
    if attribute.type == "int" and attribute.key in _STEP_COLUMNS
}
_INT_COLUMNS: Final = {
    prefix: index for prefix, index in _INTEGERS.items() if prefix not in set(map(prefix_of, _STEADY))
}
"""Those that are mostly new with each step."""
_VARYING: Final = {prefix: index for prefix, index in _INTEGERS.items() if index not in _BY_RANK}
"""Those that may differ within a block: its steps are of one rank and attempt."""
_KNOWN_PAIRS: Final[dict[bytes, tuple[int, Any]]] = {}
_PLAIN_PAIRS: Final[dict[bytes, tuple[str, Any]]] = {}
_REMEMBERED: Final = 8192
_SHORT_BYTES: Final = 96
_NO_STATUS: Final = Status()
_FACTS: Final = 1 + len(_STEP_COLUMNS)
"""Columns of `steps` before those that are no attributes."""


def reject_spans(message: Any) -> tuple[int, str]:
    """Count the spans of a request that the store can't hold.

    Args:
        message: An `ExportTraceServiceRequest`.

    Returns:
        Their number, and what is wrong with the first of them.
    """
    problems = [
        problem
        for resource_spans in message.resource_spans
        for scope_spans in resource_spans.scope_spans
        if not _all_fit(list(scope_spans.spans))  # one by one, each question would make the objects anew
        for span in scope_spans.spans
        if (problem := _problem(span))
    ]
    return len(problems), problems[0] if problems else ""


def _all_fit(spans: Sequence[Any]) -> bool:
    """The question that nearly always is answered with yes, asked of all at once."""
    if not spans:
        return True
    sizes = {len(span.trace_id) for span in spans}, {len(span.span_id) for span in spans}
    times_ns = [span.start_time_unix_nano for span in spans] + [span.end_time_unix_nano for span in spans]
    return sizes == ({_TRACE_ID_BYTES}, {_SPAN_ID_BYTES}) and max(times_ns) <= MAX_TIME_NS


def decode_spans(message: Any, default_run: RunKey, rows: Rows) -> None:
    """Turn the spans of a request into rows; those that `reject_spans` counts are left out.

    Args:
        message: A request as `wire.read_traces` gives it.
        default_run: The run of resources that name none.
        rows: Where the rows go.
    """
    for resource_spans in message.resource_spans:
        facts = facts_of_bytes(resource_spans.resource)
        run = facts.run or default_run
        rows.of(run, RESOURCES).append((run.run_id, *facts.row))
        steps, spans = rows.of(run, STEPS), rows.of(run, SPANS)
        template = _step_template(run, facts)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope
            ours = scope.name == SCOPE_NAME
            common, others = _common(run, facts, scope), scope_spans.spans
            if ours and len(others) >= step_columns.FEWEST:
                blocks, others = step_columns.take_steps(_steps_of(template, facts), others)
                rows.blocks_of(run, STEPS).extend(blocks)
            for span in map(read_span, others):
                if _problem(span):
                    continue
                step = _step_row(template, facts, span) if ours and span.name == STEP_SPAN.name else None
                if step is not None:
                    steps.append(step)
                else:
                    spans.append(_span_row(common, span))


def _steps_of(template: list[Any], facts: ResourceFacts) -> step_columns.Steps:
    name = STEP_SPAN.name.encode()
    return step_columns.Steps(name, template, facts.host, facts.resource_id, _STEP_INDEX, _VARYING, _column)


def _problem(span: Any) -> str | None:
    if len(span.trace_id) != _TRACE_ID_BYTES or len(span.span_id) != _SPAN_ID_BYTES:
        return f"span with ids of {len(span.trace_id)} and {len(span.span_id)} bytes, expected 16 and 8"
    if span.start_time_unix_nano > MAX_TIME_NS or span.end_time_unix_nano > MAX_TIME_NS:
        return "span with a time after the year 2262"
    return None


def _step_template(run: RunKey, facts: ResourceFacts) -> list[Any]:
    """A row of `steps` with what the resource knew at start; it counts only where a span says nothing."""
    row: list[Any] = [None] * _FACTS
    row[0] = run.run_id
    for index, attribute, default in _FROM_RESOURCE:
        at_start = typed(facts.attributes, attribute)
        row[index] = default if at_start is None else at_start
    return row


def _step_row(template: list[Any], facts: ResourceFacts, span: Any) -> Row | None:
    """The row of a step; None when it has no number."""
    row = template.copy()
    rest = {}
    known, ints, read_value = _KNOWN_PAIRS, _INT_COLUMNS, AnyValue.FromString
    for pair in span.attributes:
        column = known.get(pair)
        if column is None:
            end = pair[1] + 3 if len(pair) > 1 else 0
            index = ints.get(pair[:end])
            if index is not None and pair[end] == len(pair) - end - 1:
                value = read_value(pair[end + 1 :])
                number = value.int_value
                if number or value.HasField("int_value"):
                    row[index] = number
                    continue
            column = _column(pair)
            if column is None:
                name, plain = _pair(pair)
                rest[name] = plain
                continue
        row[column[0]] = column[1]
    if row[_STEP_INDEX] is None:
        return None
    return (
        *row,
        facts.host,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.trace_id.hex(),
        span.span_id.hex(),
        facts.resource_id,
        to_json(rest),
    )


def _column(pair: bytes) -> tuple[int, Any] | None:
    """Column and value of an attribute that has a column and its type; what rarely changes is known the next time."""
    parsed: Any = KeyValue.FromString(pair)
    found = _STEP_COLUMNS.get(parsed.key)
    if found is None or not parsed.value.HasField(found[1]):
        return None
    column = (found[0], getattr(parsed.value, found[1]))
    if parsed.key in _STEADY:
        _remember(_KNOWN_PAIRS, pair, column)
    return column


def _pair(pair: bytes) -> tuple[str, Any]:
    """Key and plain value of any attribute; short ones are known the next time."""
    known = _PLAIN_PAIRS.get(pair)
    if known is not None:
        return known
    parsed = KeyValue.FromString(pair)
    found = (parsed.key, any_value(parsed.value))
    if len(pair) <= _SHORT_BYTES and not isinstance(found[1], list | dict):
        _remember(_PLAIN_PAIRS, pair, found)
    return found


def _remember(known: dict[bytes, Any], pair: bytes, value: Any) -> None:
    if len(known) >= _REMEMBERED:
        known.clear()
    known[pair] = value


class _Common(NamedTuple):
    """What the spans of one resource and scope have in common; `rank` is the resource's, where a span names none."""

    run_id: str
    service_name: str | None
    scope_name: str | None
    scope_version: str | None
    rank: int | None
    resource_id: str


def _common(run: RunKey, facts: ResourceFacts, scope: Any) -> _Common:
    rank = typed(facts.attributes, RANK)
    return _Common(run.run_id, facts.service_name, scope.name or None, scope.version or None, rank, facts.resource_id)


def _span_row(common: _Common, span: Any) -> Row:
    known = _PLAIN_PAIRS.get  # nearly all are
    attributes = dict([known(pair) or _pair(pair) for pair in span.attributes])
    status = Status.FromString(span.status) if span.status else _NO_STATUS
    events, links = span.events, span.links
    return (
        common.run_id,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex() or None,
        span.trace_state or None,
        span.name,
        _name_of(_KINDS, span.kind),
        common.service_name,
        common.scope_name,
        common.scope_version,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        _name_of(_STATUSES, status.code),
        status.message or None,
        take(attributes, RANK, common.rank),
        take(attributes, STEP),
        take(attributes, PHASE),
        to_json([_event(Span.Event.FromString(event)) for event in events]) if events else None,
        to_json([_link(Span.Link.FromString(link)) for link in links]) if links else None,
        common.resource_id,
        to_json(attributes),
    )


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
