import copy
import re

import pytest

from stepmeter.conventions import registry
from stepmeter.conventions.attributes import STEP_ATTRIBUTES
from stepmeter.conventions.metrics import DURATION_BOUNDS_S, METRICS

UNITS = {"", "s", "ns", "By", "J", "W", "1", "Cel"}


def names():
    found = registry.registry()
    spans = [key for span in found["spans"].values() for key in span["attributes"]]
    return sorted({*found["resource"], *spans, *found["metrics"]})


@pytest.mark.parametrize("name", names())
def test_names_follow_the_rules(name):
    """Names are lowercase words joined by dots and underscores, under a namespace of ours or OpenTelemetry's."""
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*(\.[a-z0-9]+(_[a-z0-9]+)*)+", name)
    assert name.split(".")[0] in {"stepmeter", "hw", "host", "process", "service", "system", "thread", "error"}


def test_units_are_ucum_without_prefixes():
    """Units are UCUM; nanoseconds stand only where the name says so."""
    for attribute in STEP_ATTRIBUTES:
        assert attribute.unit in UNITS or re.fullmatch(r"\{\w+\}", attribute.unit)
        assert (attribute.unit == "ns") == attribute.key.endswith("_ns")
    for metric in METRICS:
        assert metric.unit in UNITS - {"ns"} or re.fullmatch(r"\{\w+\}", metric.unit)


def test_golden_is_current():
    """The golden schema and the vocabulary are the same; `make golden` rewrites it."""
    assert registry.golden() == registry.registry()


def test_adding_breaks_nobody():
    """A new attribute, span or metric is no breaking change."""
    now = copy.deepcopy(registry.registry())
    now["metrics"]["stepmeter.new"] = {}
    now["spans"]["step"]["attributes"]["stepmeter.new"] = {}

    assert registry.breaking_changes(registry.registry(), now) == []


def test_renaming_and_retyping_are_breaking():
    """A name that went, and a type or unit that changed, are named one by one."""
    now = copy.deepcopy(registry.registry())
    del now["metrics"]["stepmeter.steps"]
    now["metrics"]["stepmeter.step.duration"]["unit"] = "ms"
    now["spans"]["step"]["attributes"]["stepmeter.rank"]["type"] = "string"

    assert registry.breaking_changes(registry.registry(), now) == [
        "spans: step: stepmeter.rank: type was 'int' and is 'string'",
        "metrics: stepmeter.steps is gone",
        "metrics: stepmeter.step.duration: unit was 's' and is 'ms'",
    ]


@pytest.mark.parametrize(
    ("name", "unit", "instrument", "expected"),
    [
        ("stepmeter.step.duration", "s", "histogram", "stepmeter_step_duration_seconds"),
        ("stepmeter.self.cpu_time", "s", "counter", "stepmeter_self_cpu_time_seconds_total"),
        ("stepmeter.steps", "{step}", "counter", "stepmeter_steps_total"),
        ("hw.gpu.utilization", "1", "gauge", "hw_gpu_utilization_ratio"),
    ],
)
def test_prometheus_names(name, unit, instrument, expected):
    """Prometheus names have the unit as a word, then `_total` for counters."""
    assert expected == registry.prometheus_name(name, unit, instrument)


def test_duration_bounds_span_the_field():
    """Duration buckets ascend from 0.1 ms to 100 s."""
    assert list(DURATION_BOUNDS_S) == sorted(set(DURATION_BOUNDS_S))
    assert (DURATION_BOUNDS_S[0], DURATION_BOUNDS_S[-1]) == (0.0001, 100.0)
