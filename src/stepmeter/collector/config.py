"""The collector's configuration, in the OpenTelemetry Collector's grammar: the subset that we have."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector.config_exporters import read_exporters
from stepmeter.collector.config_extensions import authenticator, read_tokens
from stepmeter.collector.destination import Destination
from stepmeter.collector.scalars import alert_rule, duration_s, existing_file, flag, positive
from stepmeter.conventions import environment
from stepmeter.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepmeter.collector.yaml_tree import Node

SIGNAL_NAMES: Final = ("traces", "metrics", "logs")
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How an endpoint shows who it is.

    Attributes:
        cert_file: Its certificate, PEM.
        key_file: The certificate's key, PEM.
        client_ca_file: Certificates that senders' must be signed by, PEM; None asks for none.
    """

    cert_file: str
    key_file: str
    client_ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one protocol is received.

    Attributes:
        host: Host to listen on.
        port: Port to listen on; 0 = any free one.
        max_bytes: Limit of a request, also after decompression.
        token: What senders must show as `Authorization: Bearer …`; None asks nobody.
        tls: Certificate of this end, or None for plain text.
        open_to_all: Whether other machines may send without a token.
    """

    host: str
    port: int
    max_bytes: int = 64 * _MIB
    token: str | None = field(default=None, repr=False)
    tls: ServerTls | None = None
    open_to_all: bool = False

    @property
    def address(self) -> str:
        """`host:port`, an IPv6 host in brackets."""
        return join_address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """Everything that a configuration says.

    Attributes:
        grpc: Where OTLP over gRPC is received, or None.
        http: Where OTLP over HTTP is received, or None.
        directory: Where runs live.
        flush_interval_s: How often the journal becomes segments.
        signals: Names of the signals that are received.
        destinations: Where the original bytes are passed on to.
        alert_rules: Rules over ranks and streams, for every run: text or mappings.
        alert_webhook: URL that takes their alerts; None for none.
    """

    grpc: Endpoint | None
    http: Endpoint | None
    directory: Path
    flush_interval_s: float = 1.0
    signals: tuple[str, ...] = SIGNAL_NAMES
    destinations: tuple[Destination, ...] = ()
    alert_rules: tuple[Any, ...] = ()
    alert_webhook: str | None = field(default=None, repr=False)


def default_config(environ: Mapping[str, str]) -> CollectorConfig:
    """The configuration of `collector-config/local.yaml`, built in.

    Args:
        environ: The environment.

    Returns:
        The configuration.
    """
    return CollectorConfig(
        grpc=Endpoint("127.0.0.1", 4317),
        http=Endpoint("127.0.0.1", 4318),
        directory=Path(environ.get(environment.DIR) or environment.DEFAULT_DIR),
    )


def read_config(file: Path, environ: Mapping[str, str]) -> CollectorConfig:
    """Read a configuration file.

    Args:
        file: A YAML file.
        environ: The environment, for `${env:NAME:-default}`.

    Returns:
        The configuration.

    Raises:
        ConfigError: Something in it is unknown or wrong; the message begins with file and line.
    """
    from stepmeter.collector.yaml_tree import read_yaml

    root = read_yaml(file, environ)
    parts = root.mapping("section", ("receivers", "processors", "exporters", "extensions", "service"))
    for part in ("receivers", "processors", "service"):
        if part not in parts:
            raise root.error(f"no section {part}; see collector-config/local.yaml")
    exporters = read_exporters(parts["exporters"]) if "exporters" in parts else {}
    tokens = read_tokens(parts.get("extensions"), parts["service"])
    grpc, http = _receivers(parts["receivers"], tokens)
    default = default_config(environ)
    processor = _processor(parts["processors"], default)
    pipelines = _pipelines(parts["service"], tuple(exporters))
    destinations = (
        replace(exporter, signals=tuple(signal for signal, names in pipelines.items() if name in names))
        for name, exporter in exporters.items()
    )
    used = tuple(destination for destination in destinations if destination.signals)
    return replace(processor, grpc=grpc, http=http, signals=tuple(pipelines), destinations=used)


def parse_address(text: str) -> tuple[str, int]:
    """Take an address apart.

    Args:
        text: `host:port`; an IPv6 host stands in brackets, an empty host is 127.0.0.1.

    Returns:
        Host and port.

    Raises:
        UsageError: It is no address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f'address "{text}"; expected host:port, such as 127.0.0.1:4317')
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    return host, int(port)


def require_guarded(endpoint: Endpoint) -> Endpoint:
    """Refuse an address that other machines can reach when nothing asks who sends.

    Args:
        endpoint: The endpoint.

    Returns:
        The endpoint itself.

    Raises:
        UsageError: It is such a one.
    """
    if _is_loopback(endpoint.host) or endpoint.token or endpoint.open_to_all:
        return endpoint
    raise UsageError(
        f'address "{endpoint.address}" can be reached from other machines, and nothing asks who sends; expected a '
        "loopback address, auth with the extension bearertokenauth, or open_to_all: true in a configuration"
    )


def join_address(host: str, port: int) -> str:
    """Put an address together.

    Args:
        host: The host.
        port: The port.

    Returns:
        `host:port`, an IPv6 host in brackets.
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _receivers(node: Node, tokens: Mapping[str, str]) -> tuple[Endpoint | None, Endpoint | None]:
    receivers = node.mapping("receiver", ("otlp",))
    if "otlp" not in receivers:
        raise node.error("no receiver; expected otlp")
    otlp = receivers["otlp"]
    protocols = otlp.mapping("key", ("protocols",)).get("protocols", otlp)
    found = protocols.mapping("protocol", ("grpc", "http")) if protocols is not otlp else {}
    if not found:
        raise protocols.error("no protocol; expected grpc, http or both")
    return (
        _endpoint(found["grpc"], 4317, "max_recv_msg_size_mib", _MIB, tokens) if "grpc" in found else None,
        _endpoint(found["http"], 4318, "max_request_body_size", 1, tokens) if "http" in found else None,
    )


def _endpoint(node: Node, port: int, limit_key: str, unit_bytes: int, tokens: Mapping[str, str]) -> Endpoint:
    keys = node.mapping("key", ("endpoint", limit_key, "tls", "auth", "open_to_all"))
    host = "127.0.0.1"
    try:
        if "endpoint" in keys:
            host, port = parse_address(keys["endpoint"].text())
        return require_guarded(
            Endpoint(
                host,
                port,
                positive(keys[limit_key]) * unit_bytes if limit_key in keys else 64 * _MIB,
                token=authenticator(keys["auth"], tokens) if "auth" in keys else None,
                tls=_tls(keys["tls"]) if "tls" in keys else None,
                open_to_all=flag(keys["open_to_all"]) if "open_to_all" in keys else False,
            )
        )
    except ConfigError:
        raise
    except UsageError as error:
        raise keys.get("endpoint", node).error(str(error)) from None


def _tls(node: Node) -> ServerTls:
    keys = node.mapping("key", ("cert_file", "key_file", "client_ca_file"))
    for key in ("cert_file", "key_file"):
        if key not in keys:
            raise node.error(f"tls without {key}; expected cert_file and key_file")
    client_ca_file = existing_file(keys["client_ca_file"]) if "client_ca_file" in keys else None
    return ServerTls(existing_file(keys["cert_file"]), existing_file(keys["key_file"]), client_ca_file)


def _processor(node: Node, default: CollectorConfig) -> CollectorConfig:
    processors = node.mapping("processor", ("duckdb",))
    if "duckdb" not in processors:
        raise node.error("no processor; expected duckdb")
    keys = processors["duckdb"].mapping("key", ("directory", "flush_interval", "alert_rules", "alert_webhook"))
    return replace(
        default,
        directory=Path(keys["directory"].text()) if "directory" in keys else default.directory,
        flush_interval_s=duration_s(keys["flush_interval"]) if "flush_interval" in keys else default.flush_interval_s,
        alert_rules=tuple(alert_rule(item) for item in keys["alert_rules"].items()) if "alert_rules" in keys else (),
        alert_webhook=keys["alert_webhook"].text() if "alert_webhook" in keys else None,
    )


def _pipelines(node: Node, exporters: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """For each signal that is received the exporters that get it."""
    service = node.mapping("key", ("pipelines", "extensions"))
    pipelines = service["pipelines"].mapping("pipeline", SIGNAL_NAMES) if "pipelines" in service else {}
    if not pipelines:
        raise node.error(f"no pipeline; expected {', '.join(SIGNAL_NAMES)} or some of them under service.pipelines")
    found: dict[str, tuple[str, ...]] = {}
    for name, pipeline in pipelines.items():
        keys = pipeline.mapping("key", ("receivers", "processors", "exporters"))
        _components(pipeline, name, keys.get("receivers"), "receiver", ("otlp",))
        _components(pipeline, name, keys.get("processors"), "processor", ("duckdb",))
        wanted = keys.get("exporters")
        found[name] = tuple(_known(item, "exporter", exporters) for item in wanted.items()) if wanted else ()
    return found


def _components(pipeline: Node, name: str, listed: Node | None, kind: str, known: tuple[str, ...]) -> None:
    """A pipeline lists what it consists of, and it consists of something."""
    items = listed.items() if listed else []
    for item in items:
        _known(item, kind, known)
    if not items:
        raise (listed or pipeline).error(f"pipeline {name} has no {kind}s; expected {kind}s: [{known[0]}]")


def _known(item: Node, kind: str, known: tuple[str, ...]) -> str:
    if item.text() not in known:
        raise item.error(f'unknown {kind} "{item.value}"; known: {", ".join(known) or "none"}')
    return item.text()
