"""The same processor inside Rotel, a collector in Rust that calls Python: give it the path of this file.

    rotel start --otlp-with-trace-processor F --otlp-with-metrics-processor F --otlp-with-logs-processor F

`STEPMETER_DIR` says where runs live; `STEPMETER_RUN_ID` and `STEPMETER_RUN_NAME` which run takes telemetry that names
none.
Rotel acknowledges a request before it calls: what it was told between that and our journal is lost when it dies.
It hands bytes out as lists of numbers, and so they are kept.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import threading
from pathlib import Path
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from stepmeter.collector.decode import UNASSIGNED, RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import LOGGER, Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import LOGS, METRICS, TRACES, Encoding, Signal
from stepmeter.conventions import environment

_PARTS: Final = {TRACES: "resource_spans", METRICS: "resource_metrics", LOGS: "resource_logs"}
_LOCK: Final = threading.Lock()


def process_spans(resource_spans: Any) -> None:
    """Keep the spans of a resource.

    Args:
        resource_spans: Rotel's own object; it is not changed.
    """
    _keep(TRACES, resource_spans)


def process_metrics(resource_metrics: Any) -> None:
    """Keep the metrics of a resource.

    Args:
        resource_metrics: Rotel's own object; it is not changed.
    """
    _keep(METRICS, resource_metrics)


def process_logs(resource_logs: Any) -> None:
    """Keep the log records of a resource.

    Args:
        resource_logs: Rotel's own object; it is not changed.
    """
    _keep(LOGS, resource_logs)


def to_message(signal: Signal, part: Any) -> Any:
    """Turn what Rotel hands over into a request.

    Args:
        signal: Its signal.
        part: Rotel's object for one resource.

    Returns:
        The OTLP message.
    """
    request = signal.request()
    _fill(getattr(request, _PARTS[signal]).add(), part)
    return request


def _keep(signal: Signal, part: Any) -> None:
    try:
        body = to_message(signal, part).SerializeToString()
        _processor().accept(Record(signal, Encoding.PROTOBUF, body))
    except Exception as error:  # Rotel goes on with its own exporters whatever happens here
        LOGGER.warning("not kept: %r", error)


def _processor() -> DuckdbProcessor:
    with _LOCK:  # each kind of telemetry has a thread of its own
        return _made()


@functools.cache
def _made() -> DuckdbProcessor:
    logging.basicConfig(level=logging.INFO, format="stepmeter in rotel: %(message)s")
    run_id = os.environ.get(environment.RUN_ID)
    run = RunKey(run_id, os.environ.get(environment.RUN_NAME)) if run_id else RunKey(UNASSIGNED)
    return DuckdbProcessor(Path(os.environ.get(environment.DIR) or environment.DEFAULT_DIR), run, Health())


def _fill(message: Any, source: Any) -> None:
    """Copy field by field: Rotel's objects have the names of the protocol, but for what is one of several."""
    kind = message.DESCRIPTOR.name
    if kind == "AnyValue":
        _fill_any(message, source.value)
        return
    for field in message.DESCRIPTOR.fields:
        value = getattr(source, field.name, None)
        if value is not None and not (field.containing_oneof and field.message_type):
            _set(message, field, value)
    if kind == "Metric" and source.data is not None:
        name = type(source.data).__name__.rpartition("_")[2]
        _fill(getattr(message, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()), source.data[0])
    elif kind in {"NumberDataPoint", "Exemplar"} and source.value is not None:
        is_int = type(source.value).__name__.endswith("AsInt")
        setattr(message, "as_int" if is_int else "as_double", source.value[0])


def _set(message: Any, field: Any, value: Any) -> None:
    target = getattr(message, field.name)
    if field.is_repeated:
        if field.message_type:
            for item in value:
                _fill(target.add(), item)
        else:
            target.extend(value)
    elif field.message_type:
        target.SetInParent()
        _fill(target, value)
    else:
        setattr(message, field.name, int(value) if field.type == FieldDescriptor.TYPE_ENUM else value)


def _fill_any(message: Any, value: Any) -> None:
    field = {str: "string_value", bool: "bool_value", int: "int_value", float: "double_value", bytes: "bytes_value"}
    name = field.get(type(value))
    if name:
        setattr(message, name, value)
        return
    if value is None:
        return
    items = list(value)
    pairs = bool(items) and hasattr(items[0], "key")
    target = message.kvlist_value if pairs else message.array_value
    target.SetInParent()
    for item in items:
        # a list hands out plain values, a key-value list its pairs
        _fill(target.values.add(), item) if hasattr(item, "value") else _fill_any(target.values.add(), item)
