"""Our metrics for readers that are asked, such as Prometheus' scrape, beside those that are sent."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, MetricsData


def pull_readers(provider: object) -> list[MetricReader]:
    """The readers of a meter provider that do not push.

    Args:
        provider: Any meter provider.

    Returns:
        Its readers without an exporter; empty for a provider that is not the SDK's.
    """
    if not isinstance(provider, MeterProvider):
        return []
    # no public way leads from a provider to its readers
    readers: Iterable[Any] = getattr(provider, "_metric_readers", ())
    return [reader for reader in readers if not hasattr(reader, "_exporter") and "_collect" in vars(reader)]


class PullSource:
    """Adds the latest of our metrics to whatever a reader collects from the SDK.

    Args:
        readers: Pull readers; each has its way of collecting replaced on the instance.
    """

    def __init__(self, readers: Iterable[MetricReader]) -> None:
        self._latest: MetricsData | None = None
        self._originals: list[tuple[Any, Callable[..., Any]]] = []
        for reader in readers:
            original: Callable[..., Any] = vars(reader)["_collect"]
            self._originals.append((reader, original))
            vars(reader)["_collect"] = self._collecting(original)

    def __bool__(self) -> bool:
        return bool(self._originals)

    def publish(self, latest: MetricsData) -> None:
        """Replace what readers get.

        Args:
            latest: One point a series.
        """
        self._latest = latest

    def release(self) -> None:
        """Leave the readers as they were."""
        for reader, original in self._originals:
            vars(reader)["_collect"] = original
        self._originals = []

    def _collecting(self, original: Callable[..., Any]) -> Callable[..., MetricsData | None]:
        def collect(*arguments: Any, **named: Any) -> MetricsData | None:
            theirs: MetricsData | None = original(*arguments, **named)
            ours = self._latest
            if ours is None or theirs is None:
                return ours or theirs
            return MetricsData([*theirs.resource_metrics, *ours.resource_metrics])

        return collect
