"""The tables of a run, column by column with type, unit and meaning; segments, views and docs follow it."""

from __future__ import annotations

from typing import Final

from stepmeter.conventions.attributes import STEP_ATTRIBUTES, Attribute
from stepmeter.store.model import Column, Table

__all__ = ["Column", "Table"]

STORE_VERSION: Final = 3
"""Moves with every change of a table; a newer store is refused, an older one migrated."""

_DUCKDB_TYPES = {"int": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "boolean": "BOOLEAN"}

_UNITS = {"ns": ", in ns", "By": ", in bytes"}


def _comment(attribute: Attribute) -> str:
    """What an attribute says, as a comment: without the sentence's end and with its unit."""
    brief = attribute.brief.rstrip(".")
    words = brief if brief[:2].isupper() else brief[0].lower() + brief[1:]
    return words + _UNITS.get(attribute.unit, "")


_RUN_ID = Column("run_id", "VARCHAR", "identity of the run, the same on all ranks")
_RESOURCE_ID = Column("resource_id", "VARCHAR", "content hash of the resource; see resources")
_ATTRIBUTES = Column("attributes", "VARCHAR", "all other attributes, as one JSON object")
_TRACE_ID = Column("trace_id", "VARCHAR", "trace id, 32 hexadecimal digits")
_SPAN_ID = Column("span_id", "VARCHAR", "span id, 16 hexadecimal digits")

_SCOPE_VERSION = Column("scope_version", "VARCHAR", "version of the instrumentation scope", since=2)
_EXEMPLARS = Column("exemplars", "VARCHAR", "exemplars as a JSON array; null when there are none", since=2)
_RANK = Column("rank", "BIGINT", "global rank; null when not known")
_HW_ID = Column("hw_id", "VARCHAR", "UUID of the device")

STEPS: Final = Table(
    "steps",
    "a completed step of a rank",
    (
        _RUN_ID,
        *(
            Column(attribute.column, _DUCKDB_TYPES[attribute.type], _comment(attribute))
            for attribute in STEP_ATTRIBUTES
            if attribute.column
        ),
        Column("host", "VARCHAR", "name of the host"),
        Column("start_ns", "BIGINT", "start of the step: its first observed work, Unix time in ns"),
        Column("end_ns", "BIGINT", "end of the step: its boundary, Unix time in ns"),
        _TRACE_ID,
        _SPAN_ID,
        _RESOURCE_ID,
        _ATTRIBUTES,
    ),
    key=("attempt", "rank", "step"),
    order="step",
    prefer=("end_ns", "span_id"),
)

SPANS: Final = Table(
    "spans",
    "a span of anyone's, the steps themselves excepted",
    (
        _RUN_ID,
        _TRACE_ID,
        _SPAN_ID,
        Column("parent_span_id", "VARCHAR", "span id of the parent; null for a root"),
        Column("trace_state", "VARCHAR", "W3C trace state; null when empty"),
        Column("name", "VARCHAR", "name of the span"),
        Column("kind", "VARCHAR", "Internal, Server, Client, Producer, Consumer or Unspecified"),
        Column("service_name", "VARCHAR", "service.name of the resource"),
        Column("scope_name", "VARCHAR", "instrumentation scope"),
        Column("scope_version", "VARCHAR", "version of the instrumentation scope"),
        Column("start_ns", "BIGINT", "start, Unix time in ns"),
        Column("end_ns", "BIGINT", "end, Unix time in ns"),
        Column("status_code", "VARCHAR", "Unset, Ok or Error"),
        Column("status_message", "VARCHAR", "message of the status; null when empty"),
        Column("rank", "BIGINT", "global rank, from the span or else its resource"),
        Column("step", "BIGINT", "number of the step that the span belongs to; null outside steps"),
        Column("phase", "VARCHAR", "phase of a child of a step; null for other spans"),
        Column("events", "VARCHAR", "events as a JSON array; null when there are none"),
        Column("links", "VARCHAR", "links as a JSON array; null when there are none"),
        _RESOURCE_ID,
        _ATTRIBUTES,
    ),
    key=("trace_id", "span_id"),
    order="start_ns",
    prefer=("end_ns",),
)

_POINT_HEAD: Final = (
    _RUN_ID,
    Column("metric", "VARCHAR", "name of the metric"),
    Column("unit", "VARCHAR", "unit in UCUM"),
    Column("description", "VARCHAR", "description of the metric"),
    Column("kind", "VARCHAR", "gauge, sum, histogram, exponential_histogram or summary"),
    Column("temporality", "VARCHAR", "cumulative or delta; null for gauges and summaries"),
    Column("is_monotonic", "BOOLEAN", "whether a sum only grows; null for others"),
    Column("start_ns", "BIGINT", "start of the interval, Unix time in ns; null when not given"),
    Column("time_ns", "BIGINT", "time of the point, Unix time in ns"),
    Column("rank", "BIGINT", "global rank, from the point or else its resource"),
    Column("hw_id", "VARCHAR", "device of the point; null when it has none"),
    Column("service_name", "VARCHAR", "service.name of the resource"),
    Column("scope_name", "VARCHAR", "instrumentation scope"),
    Column("flags", "BIGINT", "OTLP flags of the point"),
)

METRIC_POINTS: Final = Table(
    "metric_points",
    "a number data point of a gauge or a sum",
    (
        *_POINT_HEAD,
        Column("int_value", "BIGINT", "value of an integer point; null for others"),
        Column("double_value", "DOUBLE", "value of a floating-point point; null for others"),
        _RESOURCE_ID,
        _ATTRIBUTES,
        _SCOPE_VERSION,
        _EXEMPLARS,
    ),
    order="time_ns",
)

HISTOGRAM_POINTS: Final = Table(
    "histogram_points",
    "a data point of a histogram, explicit or exponential, or of a summary",
    (
        *_POINT_HEAD,
        Column("count", "UBIGINT", "number of values"),
        Column("sum", "DOUBLE", "sum of the values in the metric's unit; null when not given"),
        Column("min", "DOUBLE", "least value; null when not given"),
        Column("max", "DOUBLE", "greatest value; null when not given"),
        Column("bucket_counts", "UBIGINT[]", "counts of the explicit buckets"),
        Column("explicit_bounds", "DOUBLE[]", "upper bounds of the explicit buckets but the last"),
        Column("scale", "INTEGER", "scale of an exponential histogram"),
        Column("zero_count", "UBIGINT", "values counted as zero by an exponential histogram"),
        Column("positive_offset", "INTEGER", "index of the first positive exponential bucket"),
        Column("positive_bucket_counts", "UBIGINT[]", "counts of the positive exponential buckets"),
        Column("negative_offset", "INTEGER", "index of the first negative exponential bucket"),
        Column("negative_bucket_counts", "UBIGINT[]", "counts of the negative exponential buckets"),
        Column("quantiles", "DOUBLE[]", "quantiles of a summary, 0 to 1"),
        Column("quantile_values", "DOUBLE[]", "values at those quantiles, in the metric's unit"),
        _RESOURCE_ID,
        _ATTRIBUTES,
        _SCOPE_VERSION,
        _EXEMPLARS,
    ),
    order="time_ns",
)

RESOURCES: Final = Table(
    "resources",
    "a resource: a process with its host, rank and device",
    (
        _RUN_ID,
        _RESOURCE_ID,
        Column("service_name", "VARCHAR", "service.name"),
        Column("service_instance_id", "VARCHAR", "service.instance.id"),
        Column("host", "VARCHAR", "host.name"),
        Column("pid", "BIGINT", "process.pid"),
        Column("attempt", "BIGINT", "which start of the run; null when not given"),
        Column("rank", "BIGINT", "global rank at start; null when not known then"),
        Column("local_rank", "BIGINT", "rank within the node; null when not known then"),
        Column("node_rank", "BIGINT", "rank of the node; null when not known then"),
        Column("world_size", "BIGINT", "number of ranks at start; null when not known then"),
        Column("hw_id", "VARCHAR", "UUID of the process's GPU; null without one"),
        Column("clock_anchor_unix_ns", "BIGINT", "wall clock at the process's anchor, Unix time in ns"),
        Column("clock_anchor_monotonic_ns", "BIGINT", "monotonic clock at the anchor, in ns"),
        Column("clock_boot_id", "VARCHAR", "boot to whose monotonic clock the anchor belongs"),
        _ATTRIBUTES,
    ),
    key=("resource_id",),
)

META: Final = Table(
    "meta",
    "a key and a value about the run",
    (
        Column("key", "VARCHAR", "store_version, run_id, run_name, created_ns or collector"),
        Column("value", "VARCHAR", "the value as text"),
    ),
    key=("key", "value"),
)

LOGS: Final = Table(
    "logs",
    "a log record of anyone's",
    (
        _RUN_ID,
        Column("time_ns", "BIGINT", "when it happened, Unix time in ns; null when not given"),
        Column("observed_ns", "BIGINT", "when it was observed, Unix time in ns; null when not given"),
        Column("severity_number", "INTEGER", "severity, 1 (trace) to 24 (fatal); 0 when not given"),
        Column("severity_text", "VARCHAR", "severity as the sender calls it; null when not given"),
        Column("event_name", "VARCHAR", "name of the event that the record is; null for plain logs"),
        Column("body", "VARCHAR", "the message; JSON when it is no text"),
        Column("trace_id", "VARCHAR", "trace that the record belongs to; null for none"),
        Column("span_id", "VARCHAR", "span that the record belongs to; null for none"),
        Column("service_name", "VARCHAR", "service.name of the resource"),
        Column("scope_name", "VARCHAR", "instrumentation scope"),
        Column("scope_version", "VARCHAR", "version of the instrumentation scope"),
        _RANK,
        Column("step", "BIGINT", "number of the step that it belongs to; null outside steps"),
        _RESOURCE_ID,
        _ATTRIBUTES,
    ),
    order="time_ns",
    since=2,
)

ROWS: Final = Table(
    "rows",
    "a committed row of log()",
    (
        _RUN_ID,
        Column("attempt", "BIGINT", "which start of the run; the first is 0"),
        Column("step", "BIGINT", "number of the row in its stream"),
        Column("stream", "VARCHAR", "stream of rows; null for the default one"),
        _RANK,
        Column("time_ns", "BIGINT", "when the row was committed, Unix time in ns"),
        Column("values", "VARCHAR", "values by name, as one JSON object; NaN and infinities are their names"),
        _RESOURCE_ID,
        _ATTRIBUTES,
    ),
    key=("attempt", "rank", "stream", "step", "time_ns"),
    order="step",
    since=2,
)

GPU_SAMPLES: Final = Table(
    "gpu_samples",
    "an energy tick or a power sample of a device",
    (
        _RUN_ID,
        _HW_ID,
        Column("hw_type", "VARCHAR", "kind of the device: gpu, cpu, memory; null when not given"),
        Column("host", "VARCHAR", "name of the host"),
        _RANK,
        Column("t_lo_ns", "BIGINT", "earliest moment of the reading, Unix time in ns; null when no gap is known"),
        Column("t_hi_ns", "BIGINT", "latest moment of the reading, Unix time in ns"),
        Column("energy_mj", "BIGINT", "energy counter of the device in mJ; null without a reading"),
        Column("power_mw", "BIGINT", "power of the device in mW; null without a reading"),
        Column("utilization", "DOUBLE", "share of time in which the device was busy, 0 to 1; null without a reading"),
        Column("memory_used_bytes", "BIGINT", "memory of the device in use, in bytes; null without a reading"),
        Column("temperature_celsius", "DOUBLE", "temperature of the device; null without a reading"),
        _RESOURCE_ID,
        Column(
            "power_kind", "VARCHAR", "instant; average, over a second; null for the window that NVML documents", since=3
        ),
    ),
    key=("hw_id", "t_hi_ns"),
    order="t_hi_ns",
    since=2,
)

COUNTER_SAMPLES: Final = Table(
    "counter_samples",
    "a reading of an inference server's counters",
    (
        _RUN_ID,
        Column("engine", "VARCHAR", "inference engine: vllm, sglang, tgi, llamacpp, trtllm; null when not given"),
        Column("model", "VARCHAR", "model that is served; null when not given"),
        Column("time_ns", "BIGINT", "when it was read, Unix time in ns"),
        Column("prompt_tokens", "BIGINT", "prompt tokens so far; null without a reading"),
        Column("generation_tokens", "BIGINT", "generated tokens so far; null without a reading"),
        Column("prefix_cache_queries", "BIGINT", "queries of the prefix cache so far, in tokens"),
        Column("prefix_cache_hits", "BIGINT", "hits of the prefix cache so far, in tokens"),
        Column("prefill_time_ns", "BIGINT", "time in prefill so far, in ns; null without a reading"),
        Column("decode_time_ns", "BIGINT", "time in decode so far, in ns; null without a reading"),
        _RESOURCE_ID,
    ),
    key=("resource_id", "engine", "model", "time_ns"),
    order="time_ns",
    since=2,
)

TABLES: Final = (
    *(STEPS, SPANS, METRIC_POINTS, HISTOGRAM_POINTS, RESOURCES, META),
    *(LOGS, ROWS, GPU_SAMPLES, COUNTER_SAMPLES),
)
