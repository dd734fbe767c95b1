"""The log records we emit: rows of `log()` and alerts."""

from __future__ import annotations

from typing import Final

from stepmeter.conventions.attributes import ATTEMPT, RANK, STEP, Attribute

ROW_EVENT: Final = "stepmeter.row"
"""Event name of the record of a committed row; its attributes are `ROW_ATTRIBUTES`."""

ALERT_EVENT: Final = "stepmeter.alert"
"""Event name of the record of an alert that fired; its body is the message, its severity that of the alert."""

STREAM: Final = Attribute("stepmeter.stream", "string", "Stream of rows; absent for the default one.")
VALUES_KEY: Final = "stepmeter.values"
"""Attribute of a row's record that holds its values: a key-value list of numbers, text and booleans by name."""

ALERT_RULE: Final = Attribute("stepmeter.alert.rule", "string", "Rule of an alert as it was written.")
ALERT_NAME: Final = Attribute("stepmeter.alert.name", "string", "Name of the rule, the same in all its alerts.")

ROW_ATTRIBUTES: Final = (ATTEMPT, STEP, STREAM, RANK)
"""What a row's record carries beside its values."""

RULE_EVENT: Final = "stepmeter.rule"
"""Event name of the record by which a program hands a rule over ranks or streams to its collector; its body is the
rule with its options as JSON."""

ALERT_SEVERITY: Final = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}
"""OTLP's severity number of each level."""
