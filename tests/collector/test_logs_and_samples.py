"""Tests of log records, rows of log(), device samples and inference counters as rows."""

from __future__ import annotations

import math

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue, KeyValueList
from tests.support.otlp import key_values, logs, metrics, run_resource
from tests.support.rows import MS

from stepmeter.collector.decode import Rows, RunKey
from stepmeter.collector.decode_logs import decode_records, reject_records
from stepmeter.collector.decode_metrics import decode_points
from stepmeter.store.schema import COUNTER_SAMPLES, GPU_SAMPLES, LOGS, METRIC_POINTS, ROWS

RUN = RunKey("run-1")


def decoded(decode, message, table):
    """Rows of one table, as dictionaries without nulls."""
    rows = Rows()
    decode(message, RUN, rows)
    return [
        {name: value for name, value in zip(table.column_names, row, strict=True) if value is not None}
        for row in rows.tables.get((RUN, table), [])
    ]


def test_a_log_record_is_a_row_with_its_context():
    """A record keeps message, severity, times, ids, rank and step; what it does not say is null."""
    request = logs("hello", severity_number=9, severity_text="INFO", trace_id=b"\x01" * 16, span_id=b"\x02" * 8)
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    record.attributes.extend(key_values({"stepmeter.rank": 3, "stepmeter.step": 7, "x": 1.5}))
    (row,) = decoded(decode_records, request, LOGS)
    assert row.pop("resource_id")
    assert row == {
        "run_id": "run-1",
        "time_ns": MS,
        "severity_number": 9,
        "severity_text": "INFO",
        "body": "hello",
        "trace_id": "01" * 16,
        "span_id": "02" * 8,
        "service_name": "train",
        "rank": 3,
        "step": 7,
        "attributes": '{"x":1.5}',
    }


def test_a_body_that_is_no_text_is_json():
    """A structured body is JSON; a record without one has none."""
    request = logs("a", "b", "c")
    one, two, three = (scope.log_records[0] for scope in request.resource_logs[0].scope_logs)
    one.body.CopyFrom(AnyValue(kvlist_value=KeyValueList(values=[KeyValue(key="k", value=AnyValue(int_value=1))])))
    two.body.CopyFrom(AnyValue(double_value=math.nan))
    three.ClearField("body")
    bodies = [row.get("body") for row in decoded(decode_records, request, LOGS)]
    assert bodies == ['{"k":1}', "NaN", None]


def test_records_that_cannot_be_held_are_counted():
    """A record with a time beyond 2262 or ids of a wrong length is rejected, and the others are taken."""
    request = logs("good", "late", "ids")
    good, late, ids = (scope.log_records[0] for scope in request.resource_logs[0].scope_logs)
    late.time_unix_nano = 2**63
    ids.trace_id = b"short"
    assert reject_records(request) == (2, "log record with a time after the year 2262")
    assert [row["body"] for row in decoded(decode_records, request, LOGS)] == [good.body.string_value]


def row_record(values, **attributes):
    """A row of log() as it is sent."""
    request = logs("", event_name="stepmeter.row")
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    record.attributes.extend(key_values(attributes))
    pair = record.attributes.add(key="stepmeter.values")
    pair.value.kvlist_value.values.extend(key_values(values))
    return request


def test_a_row_of_log_is_a_row():
    """The record of a committed row becomes a row with its step, stream and values; NaN is its name."""
    request = row_record(
        {"loss": 0.5, "bad": math.nan, "n": 2}, **{"stepmeter.step": 4, "stepmeter.stream": "eval", "stepmeter.rank": 1}
    )
    (row,) = decoded(decode_records, request, ROWS)
    assert row.pop("resource_id")
    assert row == {
        "run_id": "run-1",
        "attempt": 0,
        "step": 4,
        "stream": "eval",
        "rank": 1,
        "time_ns": MS,
        "values": '{"loss":0.5,"bad":"NaN","n":2}',
    }
    assert decoded(decode_records, request, LOGS) == []


def readings(resource=None, **values):
    """One point for each metric at 10 ms, of one device and server."""
    request, found = metrics(resource)
    for name, value in values.items():
        metric = found.add(name=name.replace("__", "_").replace("_dot_", "."))
        kind = metric.sum if "energy" in name or "inference" in name else metric.gauge
        point = kind.data_points.add(time_unix_nano=10 * MS)
        point.attributes.extend(
            key_values({"hw.id": "GPU-1", "hw.type": "gpu", "engine": "vllm", "model": "m", "rank": 0})
        )
        point.as_double = value
    return request


def test_readings_of_a_device_at_one_time_are_one_sample():
    """Energy, power, utilization, memory and gap of one device and time are one row in integers, and points too."""
    request = readings(
        hw_dot_energy=12.345,
        hw_dot_power=250.5,
        hw_dot_gpu_dot_utilization=0.75,
        hw_dot_gpu_dot_memory_dot_usage=1024.0,
        hw_dot_temperature=61.0,
        stepmeter_dot_energy_dot_tick__gap=0.002,
    )
    (row,) = decoded(decode_points, request, GPU_SAMPLES)
    assert row.pop("resource_id")
    assert row == {
        "run_id": "run-1",
        "hw_id": "GPU-1",
        "hw_type": "gpu",
        "host": "host",
        "rank": 0,
        "t_lo_ns": 8 * MS,
        "t_hi_ns": 10 * MS,
        "energy_mj": 12_345,
        "power_mw": 250_500,
        "utilization": 0.75,
        "memory_used_bytes": 1024,
        "temperature_celsius": 61.0,
    }
    assert len(decoded(decode_points, request, METRIC_POINTS)) == 6


def test_a_reading_that_is_none_leaves_a_null():
    """What was not read is null, NaN is no reading, and a gap without its reading is no sample."""
    (row,) = decoded(decode_points, readings(hw_dot_power=1.0, hw_dot_energy=math.nan), GPU_SAMPLES)
    assert {"power_mw"} == {"power_mw", "energy_mj", "t_lo_ns"} & row.keys()
    assert decoded(decode_points, readings(hw_dot_energy=math.inf), GPU_SAMPLES) == []


def test_a_device_may_be_named_by_the_resource():
    """A point without a device is one of the resource's device, and of none when that has none either."""
    for resource, expected in ((run_resource(**{"hw.id": "GPU-9"}), ["GPU-9"]), (run_resource(), [])):
        request = readings(resource, hw_dot_power=1.0)
        del request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].attributes[:]
        assert [row["hw_id"] for row in decoded(decode_points, request, GPU_SAMPLES)] == expected


def test_counters_of_a_server_at_one_time_are_one_sample():
    """The counters of one engine and model are one row; seconds become nanoseconds."""
    request = readings(
        stepmeter_dot_inference_dot_prompt__tokens=100.0,
        stepmeter_dot_inference_dot_generation__tokens=0.0,
        stepmeter_dot_inference_dot_prefix__cache_dot_hits=7.0,
        stepmeter_dot_inference_dot_decode_dot_time=1.5,
    )
    (row,) = decoded(decode_points, request, COUNTER_SAMPLES)
    assert row.pop("resource_id")
    assert row == {
        "run_id": "run-1",
        "engine": "vllm",
        "model": "m",
        "time_ns": 10 * MS,
        "prompt_tokens": 100,
        "generation_tokens": 0,
        "prefix_cache_hits": 7,
        "decode_time_ns": 1_500_000_000,
    }
