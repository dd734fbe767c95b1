import subprocess
import sys

import pytest
from tests.support.processes import BIN, TINY, clean_environ
from tests.support.spy import spying

from stepmeter.conventions import SCHEMA_URL
from stepmeter.conventions.metrics import METRIC_BY_NAME
from stepmeter.conventions.resource import RESOURCE_ATTRIBUTES
from stepmeter.conventions.spans import SPANS

FIELDS = {"int": "int_value", "double": "double_value", "string": "string_value", "boolean": "bool_value"}
DATA = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}
SDKS_OWN = {"telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version", "telemetry.auto.version"}


@pytest.fixture(scope="module")
def sent():
    """Everything that a training of two ranks sends, as it arrives at somebody's backend."""
    with spying() as spy:
        torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2"]
        subprocess.run(
            [str(BIN / "opentelemetry-instrument"), sys.executable, *torchrun, TINY, "--steps", "20", "--sleep", "0.1"],
            env=clean_environ(OTEL_EXPORTER_OTLP_ENDPOINT=spy.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf"),
            capture_output=True,
            timeout=100,
            check=True,
        )
    return spy


def ours(items):
    return [(resource, item) for resource, scope, item in items if scope.scope.name == "stepmeter"]


def undeclared(attributes, declared):
    """Attributes that are not declared, or not of the declared type."""
    known = {attribute.key: FIELDS[attribute.type] for attribute in declared}
    return {
        (attribute.key, attribute.value.WhichOneof("value"))
        for attribute in attributes
        if known.get(attribute.key) != attribute.value.WhichOneof("value")
    }


def missing(attributes, declared):
    return {a.key for a in declared if a.required} - {attribute.key for attribute in attributes}


def test_spans_are_as_declared(sent):
    """Every span of ours has a declared name, only declared attributes of the declared types, and all required ones."""
    kinds = {kind.name: kind for kind in SPANS}
    spans = [span for _, span in ours(sent.spans)]

    assert {"step", "run", "input_wait", "forward", "backward", "optimizer"} == {span.name for span in spans}
    for span in spans:
        declared = kinds[span.name].attributes
        assert not undeclared(span.attributes, declared) | missing(span.attributes, declared)


def test_both_ranks_send_every_step(sent):
    """Each of the two ranks sends its twenty steps, and says that they are DDP of two."""
    values = [
        {attribute.key: attribute.value for attribute in span.attributes}
        for _, span in ours(sent.spans)
        if span.name == "step"
    ]

    seen = {(value["stepmeter.rank"].int_value, value["stepmeter.step"].int_value) for value in values}
    assert {(rank, step) for rank in (0, 1) for step in range(1, 21)} == seen
    assert {(2, "ddp")} == {
        (value["stepmeter.world_size"].int_value, value["stepmeter.strategy"].string_value)
        for value in values
        if value["stepmeter.step"].int_value > 1
    }


def test_metrics_are_as_declared(sent):
    """Every metric of ours has a declared name, its instrument and unit, and only declared attributes on its points."""
    for _, metric in ours(sent.metrics):
        declared = METRIC_BY_NAME[metric.name]
        data = getattr(metric, DATA[declared.instrument])
        assert (declared.unit, DATA[declared.instrument]) == (metric.unit, metric.WhichOneof("data"))
        assert data.data_points
        for point in data.data_points:
            assert {attribute.key for attribute in point.attributes} <= set(declared.attributes)


def test_the_expected_metrics_arrive(sent):
    """A CPU training sends its steps, durations, own cost and the readings of process and host, and no GPU's."""
    names = {metric.name for _, metric in ours(sent.metrics)}

    assert {
        "stepmeter.steps",
        "stepmeter.samples",
        "stepmeter.step.duration",
        "stepmeter.phase.duration",
        "stepmeter.self.cpu_time",
        "process.cpu.time",
        "process.memory.usage",
        "system.cpu.utilization",
        "system.memory.usage",
        "system.memory.limit",
    } <= names
    assert not {name for name in names if name.startswith("hw.")}


def test_resources_are_as_declared(sent):
    """Every resource has only declared attributes of the declared types, and all required ones."""
    resources = [resource for resource, _ in [*ours(sent.spans), *ours(sent.metrics)]]

    for resource in resources:
        attributes = [attribute for attribute in resource if attribute.key not in SDKS_OWN]
        assert not undeclared(attributes, RESOURCE_ATTRIBUTES) | missing(attributes, RESOURCE_ATTRIBUTES)
    assert len({next(a.value.int_value for a in r if a.key == "process.pid") for r in resources}) == 2
    assert len({next(a.value.string_value for a in r if a.key == "stepmeter.run.id") for r in resources}) == 1


def test_the_vocabulary_is_versioned_on_the_wire(sent):
    """Scope and schema URL stand on everything that we send."""
    assert {SCHEMA_URL} == {
        scope.schema_url for _, scope, _ in [*sent.spans, *sent.metrics] if scope.scope.name == "stepmeter"
    }
