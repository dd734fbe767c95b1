"""Where the user's own telemetry was meant to go, so that `stepmeter run`'s collector can pass it on."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

_SIGNALS = ("traces", "metrics", "logs")
_HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"


def forward_arguments(environ: Mapping[str, str]) -> list[str]:
    """Turn the environment's OTLP endpoints into arguments for a collector that stands in between.

    Args:
        environ: The environment, for OTEL_EXPORTER_OTLP_* and OTEL_<SIGNAL>_EXPORTER.

    Returns:
        Arguments for `stepmeter collect`; empty where no endpoint is set. Headers are named, not quoted, so that
        secrets stay out of the process list.

    Source:
        OpenTelemetry specification, "OTLP exporter configuration": a signal's own variable goes before the general
        one; a general HTTP endpoint gets the signal's path added, a signal's own is taken as it is.
    """
    arguments = [
        argument for signal in _SIGNALS if (target := _target(environ, signal)) for argument in ("--forward", target)
    ]
    if arguments and environ.get(_HEADERS):
        arguments += ["--forward-headers-from", _HEADERS]
    return arguments


def _target(environ: Mapping[str, str], signal: str) -> str | None:
    chosen = environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp")
    if "otlp" not in {name.strip() for name in chosen.split(",")}:
        return None
    own = environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    general = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    protocol = environ.get(
        f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    )
    if protocol == "grpc":
        address = own or general
        return f"{signal}={_grpc_url(address)}" if address else None
    if own:
        return f"{signal}={own}"
    return f"{signal}={general.rstrip('/')}/v1/{signal}" if general else None


def _grpc_url(address: str) -> str:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return f"{'grpcs' if parts.scheme == 'https' else 'grpc'}://{parts.netloc}"
