"""Readings straight to an OTLP exporter, for a process that samples and trains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from stepmeter.capture.channel import Channel
from stepmeter.capture.clock import ClockAnchor, monotonic_ns
from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics
from stepmeter.telemetry import emit
from stepmeter.telemetry.aggregate import Aggregator
from stepmeter.telemetry.resource import step_resource


class ReadingsExport:
    """Sends what samplers read.

    Args:
        readings: Where they publish.
        anchor: The process's clock anchor.
        run_name: Name of the run, which all points carry.
        exporter: Where to.
    """

    def __init__(
        self, readings: Channel[Reading], anchor: ClockAnchor, run_name: str, exporter: MetricExporter
    ) -> None:
        self._readings = readings
        self._anchor = anchor
        self._base = (("run", run_name),)
        self._exporter = exporter
        self._aggregator = Aggregator(anchor.unix_ns)
        self._resource = step_resource(None, anchor)
        self.sent = 0
        self.failed = 0

    def export(self) -> bool:
        """Send what waits; takes as long as the exporter does.

        Returns:
            Whether it was taken, or nothing waited.
        """
        readings = self._readings.drain()
        for reading in readings:
            metric = metrics.METRIC_BY_NAME[reading.metric]
            at_unix_ns = self._anchor.unix_ns_of(reading.at_ns)
            self._aggregator.reading(metric, (*self._base, *reading.attributes), reading.value, at_unix_ns)
        if not readings:
            return True
        now_unix_ns = self._anchor.unix_ns_of(monotonic_ns())
        data = self._aggregator.collect(now_unix_ns, self._resource, emit.SCOPE)
        taken = self._exporter.export(data) is MetricExportResult.SUCCESS
        self.sent += len(readings) if taken else 0
        self.failed += 0 if taken else len(readings)
        return taken

    def close(self) -> None:
        """Send the rest and end the exporter."""
        self.export()
        self._exporter.shutdown()


def otlp_exporter(environ: Mapping[str, str]) -> MetricExporter:
    """The OTLP metric exporter that the environment asks for.

    Args:
        environ: The environment, of which OTEL_EXPORTER_OTLP_* are read.

    Returns:
        One for gRPC, or for HTTP where the protocol says so.
    """
    protocol = environ.get("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    made: Any
    if protocol.startswith("http"):
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpExporter

        made = HttpExporter()
    else:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        made = GrpcExporter()
    return cast("MetricExporter", made)
