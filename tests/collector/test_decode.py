"""Tests of how messages become rows."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from tests.support.otlp import key_values, metrics, run_resource, span, step_span, traces
from tests.support.rows import MS

from stepmeter.collector.decode import Rows, RunKey, any_value, resource_facts
from stepmeter.collector.decode_metrics import decode_points, reject_points
from stepmeter.collector.decode_traces import decode_spans, reject_spans
from stepmeter.collector.wire import read_traces
from stepmeter.store.schema import HISTOGRAM_POINTS, METRIC_POINTS, RESOURCES, SPANS, STEPS

RUN = RunKey("run-1")
DEFAULT = RunKey("default")


def rows_of(request, table, run=RUN, decode=decode_spans):
    """The rows that a request becomes, as dictionaries."""
    rows = Rows()
    decode(read_traces(request.SerializeToString()) if decode is decode_spans else request, DEFAULT, rows)
    return [dict(zip(table.column_names, row, strict=True)) for row in rows.of(run, table)]


def test_a_step_span_becomes_a_row_of_steps():
    """A step span of ours fills the columns that its attributes name, and is no row of spans."""
    request = traces(step_span(3, rank=1, extra="x"))
    (row,) = rows_of(request, STEPS)
    found = {name: value for name, value in row.items() if value is not None}
    assert found == {
        "run_id": "run-1",
        "step": 3,
        "attempt": 0,
        "rank": 1,
        "world_size": 1,
        "traced_cpu_ns": 8 * MS,
        "input_wait_cpu_ns": 2 * MS,
        "input_wait_count": 1,
        "forward_cpu_ns": 3 * MS,
        "forward_count": 1,
        "backward_cpu_ns": 5 * MS,
        "backward_count": 1,
        "microbatches": 1,
        "warmup": False,
        "host": "host",
        "start_ns": 30 * MS,
        "end_ns": 40 * MS,
        "trace_id": f"{3001:032x}",
        "span_id": f"{3001:016x}",
        "resource_id": row["resource_id"],
        "attributes": '{"extra":"x"}',
    }
    assert rows_of(request, SPANS) == []


def test_a_step_prefers_its_own_rank_over_the_resource():
    """What a span says binds; what the resource said at start fills what is missing; else it is rank 0 of 1."""
    late = run_resource(**{"stepmeter.rank": 7, "stepmeter.local_rank": 3, "hw.id": "GPU-1", "stepmeter.attempt": 2})
    (own,) = rows_of(traces(step_span(1, rank=1), resource=late), STEPS)
    assert (own["rank"], own["local_rank"], own["hw_id"], own["attempt"]) == (1, 3, "GPU-1", 0)
    (resource,) = rows_of(traces(step_span(1, rank=None), resource=late), STEPS)
    assert resource["rank"] == 7
    (nothing,) = rows_of(traces(step_span(1, rank=None)), STEPS)
    assert (nothing["rank"], nothing["world_size"]) == (0, 1)


@pytest.mark.parametrize(
    ("request_", "why"),
    [
        (traces(step_span(1), scope="somebody"), "another scope"),
        (traces(span("step", attributes={"stepmeter.rank": 0})), "no number"),
        (traces(span("step", attributes={"stepmeter.step": "one"})), "a number that is text"),
        (traces(span("forward", attributes={"stepmeter.step": 1})), "another name"),
    ],
)
def test_a_span_that_is_no_step_of_ours_stays_a_span(request_, why):
    """Only a span named step, of our scope and with a number, is a step."""
    assert rows_of(request_, STEPS) == [], why
    assert len(rows_of(request_, SPANS)) == 1, why


def test_an_attribute_of_a_wrong_type_stays_an_attribute():
    """A value that does not fit its column is kept in the JSON, and the column is null."""
    (row,) = rows_of(traces(step_span(1, **{"stepmeter.tokens": "many", "stepmeter.samples": True})), STEPS)
    assert (row["tokens"], row["samples"]) == (None, None)
    assert json.loads(row["attributes"]) == {"stepmeter.tokens": "many", "stepmeter.samples": True}


def test_a_span_of_anyone_becomes_a_row_of_spans():
    """A span keeps its names, status, events, links and attributes; rank, step and phase have columns."""
    message = span(
        "chat",
        number=5,
        attributes={"gen_ai.system": "x", "stepmeter.step": 4, "stepmeter.phase": "forward"},
        parent_span_id=(6).to_bytes(8, "big"),
        trace_state="a=b",
    )
    message.status.code, message.status.message = 2, "late"
    message.events.add(name="first token", time_unix_nano=3 * MS, attributes=key_values({"n": 1}))
    message.links.add(trace_id=bytes(16), span_id=bytes(8))
    (row,) = rows_of(traces(message, scope="agent"), SPANS)
    assert row["attributes"] == '{"gen_ai.system":"x"}'
    assert (row["name"], row["kind"], row["parent_span_id"]) == ("chat", "Internal", f"{6:016x}")
    assert (row["status_code"], row["status_message"], row["trace_state"]) == ("Error", "late", "a=b")
    assert (row["step"], row["phase"], row["rank"]) == (4, "forward", None)
    assert json.loads(row["events"]) == [{"time_ns": 3 * MS, "name": "first token", "attributes": {"n": 1}}]
    assert json.loads(row["links"]) == [{"trace_id": "0" * 32, "span_id": "0" * 16, "attributes": {}}]
    assert (row["scope_name"], row["service_name"]) == ("agent", "train")


def test_telemetry_without_a_run_goes_to_the_default_run():
    """A resource that names no run belongs to the run that the collector was started for."""
    request = traces(span("chat"), resource=run_resource(None))
    assert rows_of(request, SPANS) == []
    assert [row["run_id"] for row in rows_of(request, SPANS, DEFAULT)] == ["default"]


def test_a_resource_is_told_by_its_content():
    """Equal resources have one id, others another; its columns are filled and all attributes kept."""
    one, other = traces(span("a")), traces(span("b"), resource=run_resource(**{"stepmeter.rank": 1}))
    (row,) = rows_of(one, RESOURCES)
    assert (row["host"], row["pid"], row["service_name"], row["rank"]) == ("host", 42, "train", None)
    assert json.loads(row["attributes"]) == run_resource()
    ids = {resource_facts(request.resource_spans[0].resource).resource_id for request in (one, traces(), other)}
    assert len(ids) == 2


def test_spans_that_no_column_can_hold_are_counted_and_left_out():
    """A span with ids of a wrong length or a time beyond 64 bits is rejected alone."""
    short = span("short ids")
    short.trace_id = b"abc"
    late = span("late")
    late.end_time_unix_nano = 2**63
    request = traces(short, span("good"), late)
    assert reject_spans(request) == (2, "span with ids of 3 and 8 bytes, expected 16 and 8")
    assert [row["name"] for row in rows_of(request, SPANS)] == ["good"]


def test_numbers_become_points():
    """Gauges and sums keep the type of their value; rank and device have columns."""
    request, into = metrics()
    gauge = into.add(name="loss", unit="1").gauge.data_points.add(time_unix_nano=5, as_double=0.5)
    gauge.attributes.extend(key_values({"rank": 2, "hw.id": "GPU-1", "kind": "a"}))
    total = into.add(name="stepmeter.steps", unit="{step}", description="Steps.").sum
    total.aggregation_temporality, total.is_monotonic = 2, True
    total.data_points.add(start_time_unix_nano=1, time_unix_nano=6, as_int=7)
    first, second = rows_of(request, METRIC_POINTS, decode=decode_points)
    assert (first["metric"], first["double_value"], first["int_value"], first["kind"]) == ("loss", 0.5, None, "gauge")
    assert (first["rank"], first["hw_id"], first["attributes"]) == (2, "GPU-1", '{"kind":"a"}')
    assert (first["start_ns"], first["time_ns"], first["temporality"], first["is_monotonic"]) == (None, 5, None, None)
    assert (second["int_value"], second["double_value"], second["description"]) == (7, None, "Steps.")
    assert (second["start_ns"], second["temporality"], second["is_monotonic"]) == (1, "cumulative", True)


def test_histograms_of_all_three_kinds_become_points():
    """Explicit and exponential histograms and summaries share a table, each with its own columns filled."""
    request, into = metrics()
    explicit = into.add(name="explicit").histogram
    explicit.aggregation_temporality = 1
    explicit.data_points.add(count=3, sum=4.0, bucket_counts=[1, 2], explicit_bounds=[0.5], min=0.25)
    exponential = into.add(name="exponential").exponential_histogram.data_points.add(count=2, scale=-1, zero_count=1)
    exponential.positive.offset = 3
    exponential.positive.bucket_counts.extend([4, 5])
    into.add(name="summary").summary.data_points.add(count=2, sum=3.0).quantile_values.add(quantile=0.5, value=1.5)
    first, second, third = rows_of(request, HISTOGRAM_POINTS, decode=decode_points)
    assert (first["count"], first["sum"], first["min"], first["max"]) == (3, 4.0, 0.25, None)
    assert (first["bucket_counts"], first["explicit_bounds"], first["temporality"]) == ([1, 2], [0.5], "delta")
    assert (second["scale"], second["zero_count"], second["sum"]) == (-1, 1, None)
    assert (second["positive_offset"], second["positive_bucket_counts"]) == (3, [4, 5])
    assert (third["quantiles"], third["quantile_values"], third["kind"]) == ([0.5], [1.5], "summary")


def test_points_that_no_column_can_hold_are_counted_and_left_out():
    """A data point with a time beyond 64 bits is rejected alone; a metric without data has no points."""
    request, into = metrics()
    points = into.add(name="a").gauge.data_points
    points.add(time_unix_nano=2**63, as_int=1)
    points.add(time_unix_nano=1, as_int=2)
    into.add(name="nothing")
    assert reject_points(request)[0] == 1
    assert [row["int_value"] for row in rows_of(request, METRIC_POINTS, decode=decode_points)] == [2]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (AnyValue(string_value=""), ""),
        (AnyValue(string_value="a"), "a"),
        (AnyValue(int_value=0), 0),
        (AnyValue(bool_value=False), False),
        (AnyValue(double_value=0.0), 0.0),
        (AnyValue(double_value=math.nan), "NaN"),
        (AnyValue(double_value=-math.inf), "-Infinity"),
        (AnyValue(bytes_value=b"\x00\x01"), "AAE="),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=1), AnyValue(string_value="b")])), [1, "b"]),
        (AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(int_value=2))])), {"k": 2}),
        (AnyValue(), None),
    ],
)
def test_every_kind_of_value_has_its_plain_form(value, expected):
    """Each kind of attribute value becomes plain data that JSON can hold."""
    found = any_value(value)
    assert found == expected
    assert type(found) is type(expected)


@given(st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_every_integer_is_read_as_it_is(number, reordered):
    """Whatever the number and the order of the bytes on the wire, a column has what protobuf says."""
    step = step_span(1)
    body = traces(step).SerializeToString()
    pair = KeyValue(key="stepmeter.tokens", value=AnyValue(int_value=number))
    key, value = KeyValue(key=pair.key).SerializeToString(), KeyValue(value=pair.value).SerializeToString()
    step.attributes.append(pair)
    assert rows_of(traces(step), STEPS)[0]["tokens"] == number
    pair = value + key if reordered else key + value
    message = read_traces(body)
    spans = message.resource_spans[0].scope_spans[0].spans
    spans[0] += bytes((0x4A, len(pair))) + pair
    rows = Rows()
    decode_spans(message, DEFAULT, rows)
    assert rows.of(RUN, STEPS)[0][STEPS.column_names.index("tokens")] == number


def test_known_attributes_do_not_hide_what_changed():
    """A step whose attributes differ from those before has its own values, of any type, the last of two."""
    steps = [
        step_span(1, **{"stepmeter.strategy": "ddp", "x": "same"}),
        step_span(2, **{"stepmeter.strategy": "fsdp", "x": "same", "stepmeter.samples": 0}),
        step_span(3, **{"stepmeter.strategy": 5, "stepmeter.samples": 1.5}),
    ]
    steps[0].attributes.add(key="stepmeter.tokens").value.int_value = 2**40
    steps[0].attributes.add(key="stepmeter.tokens").value.int_value = -1
    found = rows_of(traces(*steps, *steps), STEPS)
    assert found[:3] == found[3:]
    assert [(row["strategy"], row["samples"], row["tokens"]) for row in found[:3]] == [
        ("ddp", None, -1),
        ("fsdp", 0, None),
        (None, None, None),
    ]
    assert [row["attributes"] for row in found[:3]] == [
        '{"x":"same"}',
        '{"x":"same"}',
        '{"stepmeter.strategy":5,"stepmeter.samples":1.5}',
    ]
