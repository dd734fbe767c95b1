"""Rows read back from the OTLP-JSON lines of a run directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from stepmeter.capture.open_row import merged
from stepmeter.conventions import attributes as words
from stepmeter.conventions import logs
from stepmeter.conventions.rows import Row
from stepmeter.runtime.opening import LINES_FOLDER

NON_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
"""What stands for floats that JSON does not have."""


def read_rows(directory: Path, stream: str | None, rank: int | None = None) -> list[Row]:
    """Read one stream, of all its attempts; later attempts win.

    Args:
        directory: The run directory.
        stream: The stream; None for the default one.
        rank: Rank whose rows; None for all, those of one step put together.

    Returns:
        Rows in the order of their steps; empty where no lines were written. A torn last line is passed over.
    """
    found: list[tuple[int, int, Row]] = []
    for file in sorted(
        (directory / LINES_FOLDER).glob(f"{stream or 'default'}.rank{'*' if rank is None else rank}.jsonl")
    ):
        found += [entry for record in _records(file) if (entry := _row(record)) is not None]
    found.sort(key=lambda entry: entry[:2])
    return merged([row for _, _, row in found])


def _records(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if '"resourceLogs"' not in line or not line.endswith("\n"):
                continue
            for resource in json.loads(line)["resourceLogs"]:
                for scope in resource["scopeLogs"]:
                    yield from scope["logRecords"]


def _row(record: Mapping[str, Any]) -> tuple[int, int, Row] | None:
    if record.get("eventName") != logs.ROW_EVENT:
        return None
    facts = _attributes(record["attributes"])
    time_ns = int(record["timeUnixNano"])
    row = Row(facts[words.STEP.key], time_ns, facts[logs.VALUES_KEY])
    return facts.get(words.ATTEMPT.key, 0), time_ns, row


def _attributes(pairs: list[Mapping[str, Any]]) -> dict[str, Any]:
    return {pair["key"]: _value(pair["value"]) for pair in pairs}


def _value(value: Mapping[str, Any]) -> Any:
    for kind, content in value.items():
        if kind == "intValue":
            return int(content)
        if kind == "kvlistValue":
            return _attributes(content["values"])
        if kind == "arrayValue":
            return [_value(item) for item in content["values"]]
        return NON_FINITE.get(content, content) if kind == "stringValue" else content
    return None
