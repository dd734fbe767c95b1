"""The OpenTelemetry distribution: defaults that never override the user, and the SDK's own configuration."""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from typing import Any, Final

from opentelemetry.instrumentation.distro import BaseDistro

from stepmeter.capture.identity import identity_from_environ
from stepmeter.capture.run import ensure_run_id
from stepmeter.runtime.process import is_helper, is_launcher, is_switched_off

_PROMETHEUS_PORT: Final = "OTEL_EXPORTER_PROMETHEUS_PORT"

DEFAULTS: Final = {
    "OTEL_TRACES_EXPORTER": "otlp",
    "OTEL_METRICS_EXPORTER": "otlp",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
    # seconds, in Python's exporters: a request never holds a sender longer than this
    "OTEL_EXPORTER_OTLP_TIMEOUT": "3",
    # the SDK's 60 s would hide a short run
    "OTEL_METRIC_EXPORT_INTERVAL": "5000",
    # a SIGTERM without a handler loses what was not sent yet
    "OTEL_BSP_SCHEDULE_DELAY": "1000",
    "OTEL_BSP_MAX_QUEUE_SIZE": "8192",
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "stepmeter_run,stepmeter_gpu,stepmeter_allocator",
    # with fork support on, gRPC prints and can hang in DataLoader workers; must be set before grpc is imported
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}
"""What the distribution sets where the user has set nothing."""


class StepmeterDistro(BaseDistro):  # type: ignore[misc] # the base class has no types
    """Sets defaults in the environment and settles the run's identity."""

    def _configure(self, **_: Any) -> None:
        if is_switched_off(os.environ) or is_helper(sys.orig_argv):
            return
        ensure_run_id(os.environ)
        if is_launcher(sys.orig_argv):
            return
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        _give_each_rank_a_port(os.environ)


class StepmeterConfigurator:
    """Configures the OpenTelemetry SDK from the environment, unless there is nothing to configure it for."""

    def configure(self, **arguments: Any) -> None:
        """Configure the SDK's providers.

        Args:
            **arguments: What the auto-instrumentation passes on to the SDK.
        """
        if is_switched_off(os.environ) or is_helper(sys.orig_argv) or is_launcher(sys.orig_argv):
            return
        from stepmeter.telemetry.setup import configure_sdk

        configure_sdk(**arguments)


def _give_each_rank_a_port(environ: MutableMapping[str, str]) -> None:
    """Several ranks of a host can't listen on one port for Prometheus; each takes the port plus its local rank."""
    local_rank = identity_from_environ(environ).local_rank or 0
    if local_rank and "prometheus" in environ.get("OTEL_METRICS_EXPORTER", ""):
        port = environ.get(_PROMETHEUS_PORT, "9464")
        if port.isdecimal():
            environ[_PROMETHEUS_PORT] = str(int(port) + local_rank)
