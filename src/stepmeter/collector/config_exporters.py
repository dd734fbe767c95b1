"""Exporters in a configuration: `otlp_grpc/…`, `otlp_http/…` and their older names, with the Collector's own keys."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from stepmeter.collector.destination import (
    CONSUMERS,
    QUEUE_BYTES,
    TIMEOUT_S,
    Destination,
    Protocol,
    RetryPolicy,
    Tls,
)
from stepmeter.collector.scalars import choice, duration_s, existing_file, flag, positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepmeter.collector.yaml_tree import Node

_TYPES: Final[dict[str, Protocol]] = {"otlp_grpc": "grpc", "otlp_http": "http", "otlp": "grpc", "otlphttp": "http"}
"""`otlp` and `otlphttp` are what the Collector called them before v0.144."""
_SIGNAL_ENDPOINTS: Final = ("traces_endpoint", "metrics_endpoint", "logs_endpoint")
_COMMON: Final = ("endpoint", "tls", "headers", "compression", "timeout", "sending_queue", "retry_on_failure")
_KEYS: Final[dict[Protocol, tuple[str, ...]]] = {"grpc": _COMMON, "http": (*_COMMON, *_SIGNAL_ENDPOINTS)}
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^\s:/]+):\d{1,5}")


def read_exporters(node: Node) -> dict[str, Destination]:
    """Read the section `exporters`.

    Args:
        node: The section.

    Returns:
        Destinations by component id, without signals: pipelines say those.

    Raises:
        ConfigError: An exporter or a key of it is unknown or wrong.
    """
    found: dict[str, Destination] = {}
    for name, exporter in node.entries().items():
        protocol = _TYPES.get(name.partition("/")[0])
        if protocol is None:
            raise exporter.error(f'unknown exporter "{name}"; known: {", ".join(_TYPES)}, also with /name')
        found[name] = _exporter(name, protocol, exporter)
    return found


def _exporter(name: str, protocol: Protocol, node: Node) -> Destination:
    keys = node.mapping("key", _KEYS[protocol])
    endpoint, secure = _endpoint(node, keys, protocol)
    tls, insecure = _tls(keys.get("tls"))
    urls = tuple((key.partition("_")[0], _url(keys[key])) for key in _SIGNAL_ENDPOINTS if key in keys)
    queue_bytes, consumers = _queue(keys.get("sending_queue"))
    return Destination(
        name=name,
        protocol=protocol,
        endpoint=endpoint,
        signals=(),
        secure=secure if secure is not None else not insecure,
        urls=urls,
        headers=_headers(keys.get("headers")),
        tls=tls,
        compression=choice(keys["compression"], ("none", "gzip")) if "compression" in keys else "gzip",
        timeout_s=duration_s(keys["timeout"]) if "timeout" in keys else TIMEOUT_S,
        queue_bytes=queue_bytes,
        consumers=consumers,
        retry=_retry(keys.get("retry_on_failure")),
    )


def _endpoint(node: Node, keys: Mapping[str, Node], protocol: Protocol) -> tuple[str, bool | None]:
    """The endpoint, and whether its scheme says that it is encrypted."""
    if "endpoint" not in keys:
        if protocol == "http" and any(key in keys for key in _SIGNAL_ENDPOINTS):
            return "", any(keys[key].text().startswith("https:") for key in _SIGNAL_ENDPOINTS if key in keys)
        raise node.error("no endpoint; expected endpoint: host:port, or a URL for HTTP")
    text = keys["endpoint"].text()
    if protocol == "http":
        return _url(keys["endpoint"]), text.startswith("https:")
    scheme, _, address = text.rpartition("://")
    if scheme not in {"", "http", "https"} or not _ADDRESS.fullmatch(address):
        raise keys["endpoint"].error(f'endpoint "{text}"; expected host:port')
    return address, {"http": False, "https": True}.get(scheme)


def _url(node: Node) -> str:
    text = node.text()
    try:
        parts = urlsplit(text)
        valid = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise node.error(f'endpoint "{text}"; expected a URL such as http://127.0.0.1:4318')
    return text


def _tls(node: Node | None) -> tuple[Tls, bool]:
    keys = node.mapping("key", ("insecure", "ca_file", "cert_file", "key_file")) if node else {}
    files = {key: existing_file(keys[key]) for key in ("ca_file", "cert_file", "key_file") if key in keys}
    if node and ("cert_file" in files) != ("key_file" in files):
        raise node.error("cert_file and key_file belong together; expected both or neither")
    return Tls(**files), flag(keys["insecure"]) if "insecure" in keys else False


def _headers(node: Node | None) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value.text()) for name, value in node.entries().items()) if node else ()


def _queue(node: Node | None) -> tuple[int, int]:
    if node is None:
        return QUEUE_BYTES, CONSUMERS
    keys = node.mapping("key", ("enabled", "sizer", "queue_size", "num_consumers"))
    if "enabled" in keys and not flag(keys["enabled"]):
        raise keys["enabled"].error("the queue can't be turned off: a slow backend would hold up the store")
    if "sizer" in keys:
        choice(keys["sizer"], ("bytes",))
    elif "queue_size" in keys:
        raise keys["queue_size"].error("queue_size without its unit; expected sizer: bytes beside it")
    return (
        positive(keys["queue_size"]) if "queue_size" in keys else QUEUE_BYTES,
        positive(keys["num_consumers"]) if "num_consumers" in keys else CONSUMERS,
    )


def _retry(node: Node | None) -> RetryPolicy:
    keys = node.mapping("key", ("enabled", "initial_interval", "max_interval", "max_elapsed_time")) if node else {}
    if "enabled" in keys and not flag(keys["enabled"]):
        return RetryPolicy(max_elapsed_s=0)
    names = {
        "initial_interval": "initial_interval_s",
        "max_interval": "max_interval_s",
        "max_elapsed_time": "max_elapsed_s",
    }
    return RetryPolicy(**{field: duration_s(keys[key]) for key, field in names.items() if key in keys})
