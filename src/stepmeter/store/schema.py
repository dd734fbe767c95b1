"""The tables of a run, column by column with type, unit and meaning; segments, views and docs follow it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stepmeter.conventions.attributes import STEP_ATTRIBUTES

STORE_VERSION: Final = 1
"""Moves with every change of a table; a newer store is refused, an older one migrated."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: Its name, with the unit of a number in it.
        type: Its DuckDB type.
        comment: What it holds, with the unit.
    """

    name: str
    type: str
    comment: str


@dataclass(frozen=True, slots=True)
class Table:
    """One table of a run.

    Attributes:
        name: Its name in schema `raw`.
        comment: What one row is.
        columns: Its columns in order.
    """

    name: str
    comment: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns, in order."""
        return tuple(column.name for column in self.columns)


_DUCKDB_TYPES = {"int": "BIGINT", "double": "DOUBLE", "string": "VARCHAR", "boolean": "BOOLEAN"}

_RUN_ID = Column("run_id", "VARCHAR", "identity of the run, the same on all ranks")
_RESOURCE_ID = Column("resource_id", "VARCHAR", "content hash of the resource; see resources")
_ATTRIBUTES = Column("attributes", "VARCHAR", "all other attributes, as one JSON object")
_TRACE_ID = Column("trace_id", "VARCHAR", "trace id, 32 hexadecimal digits")
_SPAN_ID = Column("span_id", "VARCHAR", "span id, 16 hexadecimal digits")

STEPS: Final = Table(
    "steps",
    "a completed step of a rank",
    (
        _RUN_ID,
        *(
            Column(attribute.column, _DUCKDB_TYPES[attribute.type], attribute.brief)
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
    ),
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
        Column("quantile_values", "DOUBLE[]", "values at those quantiles"),
        _RESOURCE_ID,
        _ATTRIBUTES,
    ),
)

RESOURCES: Final = Table(
    "resources",
    "a resource, once for each collector that saw it",
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
)

META: Final = Table(
    "meta",
    "a key and a value about the run",
    (
        Column("key", "VARCHAR", "store_version, run_id, run_name, created_ns or collector"),
        Column("value", "VARCHAR", "the value as text"),
    ),
)

TABLES: Final = (STEPS, SPANS, METRIC_POINTS, HISTOGRAM_POINTS, RESOURCES, META)
