"""One span and one metric on the real way out, to see whether a collector takes them."""

from __future__ import annotations

import time

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource

from stepmeter.capture.clock import monotonic_ns, read_anchor
from stepmeter.capture.identity import Identity
from stepmeter.conventions import metrics
from stepmeter.conventions import resource as words
from stepmeter.telemetry import emit
from stepmeter.telemetry.aggregate import Aggregator
from stepmeter.telemetry.readable import readable


def send_probe(endpoint: str, run_id: str, timeout_s: float = 5.0) -> bool:
    """Send one `run` span and one point of `stepmeter.steps`.

    Args:
        endpoint: `host:port` of an OTLP/gRPC receiver without TLS.
        run_id: The run to send them for.
        timeout_s: How long each request may take.

    Returns:
        Whether both were acknowledged.
    """
    anchor = read_anchor()
    resource = Resource({words.SERVICE_NAME.key: "stepmeter-doctor", words.RUN_ID.key: run_id})
    origin = emit.Origin(resource, run_id, run_id, anchor)
    aggregator = Aggregator(anchor.unix_ns)
    aggregator.add(metrics.STEPS, emit.point_attributes(Identity(), run_id), 1)
    span_exporter = OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=timeout_s)
    metric_exporter = OTLPMetricExporter(endpoint=endpoint, insecure=True, timeout=timeout_s)
    try:
        spans = span_exporter.export([readable(emit.run_span(Identity(), origin, monotonic_ns(), "started"), resource)])
        points = metric_exporter.export(aggregator.collect(time.time_ns(), resource, emit.SCOPE))
    finally:
        span_exporter.shutdown()
        metric_exporter.shutdown()
    return spans.name == "SUCCESS" and points.name == "SUCCESS"
