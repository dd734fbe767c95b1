"""Committed rows and alerts as OpenTelemetry log records, and rows as metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from stepmeter.capture.value import finite
from stepmeter.conventions import attributes as words
from stepmeter.conventions import logs, metrics
from stepmeter.conventions.rows import Row, number
from stepmeter.telemetry.aggregate import Aggregator, Attributes

_MAX_NAMES: Final = 1000
_INFO: Final = 9


class LogRecord(NamedTuple):
    """A log record before it becomes protobuf or JSON.

    Attributes:
        event: Name of the event that it is.
        time_ns: When it happened, Unix time in ns.
        severity_number: OTLP's number, 1 to 24.
        severity_text: The level's name.
        body: The message.
        facts: Its attributes.
    """

    event: str
    time_ns: int
    severity_number: int
    severity_text: str
    body: str
    facts: dict[str, Any]


def row_record(row: Row, common: Mapping[str, Any]) -> LogRecord:
    """Write a committed row.

    Args:
        row: The row.
        common: Attempt, rank and stream.

    Returns:
        Its record; non-finite values are their names.
    """
    facts = {**common, words.STEP.key: row.step, logs.VALUES_KEY: finite(dict(row.values))}
    return LogRecord(logs.ROW_EVENT, row.time_ns, _INFO, "INFO", "", facts)


def alert_record(
    time_ns: int, step: int, level: str, message: str, rule: str, name: str, common: Mapping[str, Any]
) -> LogRecord:
    """Write an alert that fired.

    Args:
        time_ns: When, Unix time in ns.
        step: Step of the row that it fired on.
        level: debug, info, warning, error or critical.
        message: What it says.
        rule: The rule as it was written.
        name: Name of the rule.
        common: Attempt, rank and stream.

    Returns:
        Its record.
    """
    facts = {**common, words.STEP.key: step, logs.ALERT_RULE.key: rule, logs.ALERT_NAME.key: name}
    return LogRecord(logs.ALERT_EVENT, time_ns, logs.ALERT_SEVERITY[level], level.upper(), message, facts)


def rule_record(time_ns: int, rule: str, common: Mapping[str, Any]) -> LogRecord:
    """Write a rule that the collector is to evaluate.

    Args:
        time_ns: Now, Unix time in ns.
        rule: The rule with its options as JSON.
        common: Attempt, rank and stream.

    Returns:
        Its record.
    """
    return LogRecord(logs.RULE_EVENT, time_ns, _INFO, "INFO", rule, dict(common))


class RowMetrics:
    """Rows as gauges under the program's own names, and a count of what was not finite.

    Args:
        aggregator: The process's series.
    """

    def __init__(self, aggregator: Aggregator) -> None:
        self._aggregator = aggregator
        self._gauges: dict[str, metrics.Metric] = {}

    def record(self, row: Row, base: Attributes) -> None:
        """Take a row.

        Args:
            row: The row.
            base: Attributes of every point.
        """
        for name, logged in row.values.items():
            value = number(logged)
            if value is None:
                continue
            if not math.isfinite(value):
                self._aggregator.add(metrics.NONFINITE, (*base, ("kind", name)), 1)
                continue
            gauge = self._gauge(name)
            if gauge is not None:
                self._aggregator.gauge(gauge, base, value)

    def _gauge(self, name: str) -> metrics.Metric | None:
        gauge = self._gauges.get(name)
        if gauge is None and len(self._gauges) < _MAX_NAMES:
            gauge = self._gauges[name] = metrics.Metric(name, "gauge", "1", "A value that the program logged.")
        return gauge
