"""Log records to rows: a row of `log()` becomes one of `rows`, every other record one of `logs`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from stepmeter.collector.decode import (
    MAX_TIME_NS,
    ResourceFacts,
    Row,
    Rows,
    RunKey,
    any_value,
    attributes_of,
    resource_facts,
    take,
    to_json,
    typed,
)
from stepmeter.conventions.attributes import ATTEMPT, RANK, STEP
from stepmeter.conventions.logs import ROW_EVENT, STREAM, VALUES_KEY
from stepmeter.store.schema import LOGS, RESOURCES, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_SEVERITY: Final = 24


def reject_records(message: Any) -> tuple[int, str]:
    """Count the log records of a request that the store can't hold.

    Args:
        message: An `ExportLogsServiceRequest`.

    Returns:
        Their number, and what is wrong with the first of them.
    """
    problems = [problem for record in _records(message) if (problem := _problem(record))]
    return len(problems), problems[0] if problems else ""


def decode_records(message: Any, default_run: RunKey, rows: Rows) -> None:
    """Turn the log records of a request into rows; those that `reject_records` counts are left out.

    Args:
        message: An `ExportLogsServiceRequest`.
        default_run: The run of resources that name none.
        rows: Where the rows go.
    """
    for resource_logs in message.resource_logs:
        facts = resource_facts(resource_logs.resource)
        run = facts.run or default_run
        rows.of(run, RESOURCES).append((run.run_id, *facts.row))
        for scope_logs in resource_logs.scope_logs:
            for record in scope_logs.log_records:
                if _problem(record):
                    continue
                attributes = attributes_of(record.attributes)
                if record.event_name == ROW_EVENT and isinstance(attributes.get(VALUES_KEY), dict):
                    rows.of(run, ROWS).append(_row(run, facts, record, attributes))
                else:
                    rows.of(run, LOGS).append(_log(run, facts, scope_logs.scope, record, attributes))


def _records(message: Any) -> Iterator[Any]:
    for resource_logs in message.resource_logs:
        for scope_logs in resource_logs.scope_logs:
            yield from scope_logs.log_records


def _problem(record: Any) -> str | None:
    if record.time_unix_nano > MAX_TIME_NS or record.observed_time_unix_nano > MAX_TIME_NS:
        return "log record with a time after the year 2262"
    if len(record.trace_id) not in {0, 16} or len(record.span_id) not in {0, 8}:
        return f"log record with ids of {len(record.trace_id)} and {len(record.span_id)} bytes, expected 16 and 8"
    return None


def _row(run: RunKey, facts: ResourceFacts, record: Any, attributes: dict[str, Any]) -> Row:
    values = attributes.pop(VALUES_KEY)
    attempt = take(attributes, ATTEMPT, typed(facts.attributes, ATTEMPT))
    return (
        run.run_id,
        0 if attempt is None else attempt,
        take(attributes, STEP),
        take(attributes, STREAM),
        take(attributes, RANK, typed(facts.attributes, RANK)),
        record.time_unix_nano or record.observed_time_unix_nano,
        orjson.dumps(values).decode(),
        facts.resource_id,
        to_json(attributes),
    )


def _log(run: RunKey, facts: ResourceFacts, scope: Any, record: Any, attributes: dict[str, Any]) -> Row:
    severity = record.severity_number
    return (
        run.run_id,
        record.time_unix_nano or None,
        record.observed_time_unix_nano or None,
        severity if 0 <= severity <= _MAX_SEVERITY else 0,
        record.severity_text or None,
        record.event_name or None,
        _body(record.body),
        record.trace_id.hex() or None,
        record.span_id.hex() or None,
        facts.service_name,
        scope.name or None,
        scope.version or None,
        take(attributes, RANK, typed(facts.attributes, RANK)),
        take(attributes, STEP),
        facts.resource_id,
        to_json(attributes),
    )


def _body(body: Any) -> str | None:
    value = any_value(body)
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()
