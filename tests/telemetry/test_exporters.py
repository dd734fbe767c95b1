import os

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

from stepmeter.telemetry.exporters import metric_exporters, protect, span_exporters, unprotect
from stepmeter.telemetry.guard import Guard


class Metrics(MetricExporter):
    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        raise NotImplementedError

    def shutdown(self, timeout_millis=30_000, **kwargs):
        pass

    def force_flush(self, timeout_millis=10_000):
        return True


def test_finds_the_users_span_exporters():
    """The exporters behind batch and simple processors are found, each once."""
    exporter, other = InMemorySpanExporter(), InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    for processor in (BatchSpanProcessor(exporter), SimpleSpanProcessor(exporter), SimpleSpanProcessor(other)):
        provider.add_span_processor(processor)

    assert [exporter, other] == span_exporters(provider)
    provider.shutdown()


def test_finds_the_users_push_exporters():
    """Metric exporters behind periodic readers are found; pull readers have none."""
    exporter = Metrics()
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1e9)
    provider = MeterProvider([InMemoryMetricReader(), reader], shutdown_on_exit=False)

    assert [exporter] == metric_exporters(provider)
    exporter.export = lambda *args, **kwargs: None
    provider.shutdown()


def test_no_sdk_no_exporters():
    """A provider that is not the SDK's has no exporters."""
    assert span_exporters(NoOpTracerProvider()) == []
    assert metric_exporters(object()) == []


def test_a_forked_child_sends_nothing():
    """A protected exporter sends from the process that made it and from no fork of it."""
    exporter = InMemorySpanExporter()
    protect(exporter, Guard())
    pid = os.fork()
    if pid == 0:
        exporter.export(["from the child"])
        os._exit(len(exporter.get_finished_spans()))
    exporter.export(["from the parent"])

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert exporter.get_finished_spans() == ("from the parent",)


def test_unprotect_restores_the_identical_method():
    """Taking the protection off leaves the exporter as it was."""
    exporter = InMemorySpanExporter()
    before = dict(vars(exporter))
    protect(exporter, Guard())
    protect(exporter, Guard())
    unprotect(exporter)
    unprotect(exporter)

    assert before == vars(exporter)


def test_a_dead_backend_is_one_line(capfd):
    """However often a backend refuses, stderr has one line about it and stdout none."""
    exporter = OTLPSpanExporter(endpoint="127.0.0.1:9", insecure=True, timeout=0.2)
    protect(exporter, Guard())
    for _ in range(2):
        exporter.export([])
    exporter.shutdown()

    out, err = capfd.readouterr()
    assert err == "stepmeter: telemetry could not be delivered to 127.0.0.1:9; the program goes on\n"
    assert not out
