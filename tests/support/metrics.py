"""Where a program's own metric exporter puts what it gets."""

from __future__ import annotations

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult


class Metrics(MetricExporter):
    """Keeps every export in `taken`."""

    def __init__(self):
        super().__init__()
        self.taken = []

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        self.taken.append(metrics_data)
        return MetricExportResult.SUCCESS

    def shutdown(self, timeout_millis=30_000, **kwargs):
        pass

    def force_flush(self, timeout_millis=10_000):
        return True

    def points(self, name):
        """The points of a metric in the newest export; none where it has none."""
        (resource_metrics,) = self.taken[-1].resource_metrics
        found = {metric.name: metric.data.data_points for metric in resource_metrics.scope_metrics[0].metrics}
        return found.get(name, [])
