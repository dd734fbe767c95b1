"""Where telemetry is passed on to, as a configuration or a command line says it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from stepmeter.errors import UsageError

Protocol = Literal["grpc", "http"]

_SCHEMES: Final[dict[str, tuple[Protocol, bool]]] = {
    "grpc": ("grpc", False),
    "grpcs": ("grpc", True),
    "http": ("http", False),
    "https": ("http", True),
}
_SIGNAL_PREFIX: Final = re.compile(r"(traces|metrics|logs)=(.*)")
TIMEOUT_S: Final = 10.0
QUEUE_BYTES: Final = 64 << 20
CONSUMERS: Final = 4


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long a destination that asks to come again is asked again; the Collector's keys and defaults.

    Attributes:
        initial_interval_s: First pause.
        max_interval_s: Longest pause; each is 1.5 times the one before.
        max_elapsed_s: A request is given up after this long; 0 = after one attempt.

    Source:
        OpenTelemetry Collector, `exporterhelper`, `retry_on_failure`.
    """

    initial_interval_s: float = 5.0
    max_interval_s: float = 30.0
    max_elapsed_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Tls:
    """How the other end of a connection is recognised.

    Attributes:
        ca_file: Certificates to trust, PEM; None trusts those of the system.
        cert_file: Our own certificate, PEM, or None.
        key_file: Its key, PEM, or None.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Destination:
    """One place to which the original bytes go.

    Attributes:
        name: Its name in counters and messages.
        protocol: `grpc` or `http`.
        endpoint: `host:port` for gRPC; for HTTP the URL to which `/v1/<signal>` is added.
        signals: Names of the signals that go there.
        secure: Whether the connection is encrypted.
        urls: For HTTP, whole URLs of signals that differ from the endpoint's.
        headers: Names and values sent with each request.
        tls: How the destination is recognised.
        compression: `none` or `gzip`.
        timeout_s: Limit of one attempt.
        queue_bytes: Limit of what waits, including what is under way; beyond it new requests are dropped.
        consumers: How many requests are under way at once; 1 keeps their order.
        retry: How often and how long it is tried again.
    """

    name: str
    protocol: Protocol
    endpoint: str
    signals: tuple[str, ...] = ("traces", "metrics", "logs")
    secure: bool = False
    urls: tuple[tuple[str, str], ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    tls: Tls = field(default_factory=Tls)
    compression: str = "none"
    timeout_s: float = TIMEOUT_S
    queue_bytes: int = QUEUE_BYTES
    consumers: int = CONSUMERS
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def url(self, signal: str) -> str:
        """Where a signal is posted.

        Args:
            signal: Name of the signal.

        Returns:
            The URL.
        """
        return dict(self.urls).get(signal) or f"{self.endpoint.rstrip('/')}/v1/{signal}"


def parse_destination(text: str, headers: tuple[tuple[str, str], ...] = ()) -> Destination:
    """Read a destination from a command line.

    Args:
        text: `grpc://host:port`, `grpcs://…` with TLS, `http://…` or `https://…`; with `traces=`, `metrics=` or
            `logs=` before it only that signal goes there, and an HTTP URL is taken as it is.
        headers: Names and values sent with each request.

    Returns:
        The destination, named after its host and port.

    Raises:
        UsageError: It is no such URL.
    """
    match = _SIGNAL_PREFIX.fullmatch(text)
    signal, url = match.groups() if match else (None, text)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _SCHEMES or not parts.hostname or parts.username:
        raise UsageError(f'destination "{text}"; expected grpc://host:port, grpcs://, http:// or https://')
    protocol, secure = _SCHEMES[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    endpoint = f"{host}:{port or 4317}" if protocol == "grpc" else url
    return Destination(
        name=f"{protocol}/{signal + '/' if signal else ''}{parts.netloc}",
        protocol=protocol,
        endpoint=endpoint,
        signals=(signal,) if signal else ("traces", "metrics", "logs"),
        secure=secure,
        urls=((signal, url),) if signal and protocol == "http" else (),
        headers=headers,
    )


def parse_header(text: str) -> tuple[str, str]:
    """Read a header from a command line.

    Args:
        text: `name=value`.

    Returns:
        The name in lower case, as gRPC wants it, and the value.

    Raises:
        UsageError: It is no such pair.
    """
    name, equals, value = text.partition("=")
    if not equals or not re.fullmatch(r"[A-Za-z0-9_.-]+", name.strip()) or "\n" in value or "\r" in value:
        # the value may be a secret and does not belong in a message
        raise UsageError(f'header "{name[:40]}"; expected name=value')
    return name.strip().lower(), value.strip()


def parse_headers(text: str) -> tuple[tuple[str, str], ...]:
    """Read headers as `OTEL_EXPORTER_OTLP_HEADERS` writes them.

    Args:
        text: `name=value,name=value`, values percent-encoded.

    Returns:
        Names in lower case with their values.

    Raises:
        UsageError: One of them is no such pair.
    """
    return tuple(parse_header(unquote(pair)) for pair in text.split(",") if pair.strip())
