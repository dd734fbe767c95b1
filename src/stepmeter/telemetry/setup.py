"""Configures the OpenTelemetry SDK, and keeps its exit within bounds."""

from __future__ import annotations

import atexit
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk._configuration import _OTelSDKConfigurator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from stepmeter.telemetry.exporters import metric_exporters, protect, span_exporters, unprotect
from stepmeter.telemetry.guard import Guard


class _Configurator(_OTelSDKConfigurator):
    """The SDK's own configuration, which it asks distributions to subclass."""


def configure_sdk(**arguments: Any) -> bool:
    """Make the SDK's providers from the environment, unless a provider is there already.

    Args:
        **arguments: For the SDK's configurator.

    Returns:
        Whether they were made here.
    """
    if not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return False
    _Configurator().configure(**arguments)  # type: ignore[no-untyped-call] # the SDK's is untyped
    return True


class BoundedExit:
    """Takes the providers' shutdown at exit over from the SDK, which would wait up to 40 s for a dead backend.

    For providers that were configured for the program, not for those that it made itself.

    Args:
        guard: Takes what fails.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._providers: list[Any] = []
        self._exporters: list[Any] = []

    def take_over(self) -> None:
        """Take over the global providers, if they are the SDK's."""
        tracers, meters = trace.get_tracer_provider(), metrics.get_meter_provider()
        self._providers = [each for each in (meters, tracers) if isinstance(each, TracerProvider | MeterProvider)]
        self._exporters = [*span_exporters(tracers), *metric_exporters(meters)]
        for provider in self._providers:
            atexit.unregister(provider.shutdown)
        for exporter in self._exporters:
            protect(exporter, self._guard)

    def give_back(self) -> None:
        """Leave the end of the providers to the SDK again."""
        for provider in self._providers:
            atexit.register(provider.shutdown)
        for exporter in self._exporters:
            unprotect(exporter)

    def shut_down(self) -> None:
        """Shut the providers down; with a dead backend this returns only after `cancel`."""
        for provider in self._providers:
            with self._guard.over("shutting the SDK down"):
                provider.shutdown()

    def cancel(self) -> None:
        """Give up what is still under way, from another thread than that of `shut_down`."""
        for exporter in self._exporters:
            with self._guard.over("cancelling an export"):
                exporter.shutdown()
