"""The collector's configuration, in the OpenTelemetry Collector's grammar: the subset that we have."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stepmeter.collector.config_exporters import read_exporters
from stepmeter.collector.destination import Destination
from stepmeter.collector.scalars import duration_s, positive
from stepmeter.conventions import environment
from stepmeter.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepmeter.collector.yaml_tree import Node

SIGNAL_NAMES: Final = ("traces", "metrics", "logs")
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where one protocol is received.

    Attributes:
        host: Host to listen on.
        port: Port to listen on; 0 = any free one.
        max_bytes: Limit of a request, also after decompression.
    """

    host: str
    port: int
    max_bytes: int = 64 * _MIB

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
    """

    grpc: Endpoint | None
    http: Endpoint | None
    directory: Path
    flush_interval_s: float = 1.0
    signals: tuple[str, ...] = SIGNAL_NAMES
    destinations: tuple[Destination, ...] = ()


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
    parts = root.mapping("section", ("receivers", "processors", "exporters", "service"))
    for part in ("receivers", "processors", "service"):
        if part not in parts:
            raise root.error(f"no section {part}; see collector-config/local.yaml")
    exporters = read_exporters(parts["exporters"]) if "exporters" in parts else {}
    grpc, http = _receivers(parts["receivers"])
    default = default_config(environ)
    directory, flush_interval_s = _processor(parts["processors"], default)
    pipelines = _pipelines(parts["service"], tuple(exporters))
    destinations = (
        replace(exporter, signals=tuple(signal for signal, names in pipelines.items() if name in names))
        for name, exporter in exporters.items()
    )
    used = tuple(destination for destination in destinations if destination.signals)
    return CollectorConfig(grpc, http, directory, flush_interval_s, tuple(pipelines), used)


def parse_address(text: str) -> tuple[str, int]:
    """Take an address apart.

    Args:
        text: `host:port`; an IPv6 host stands in brackets, an empty host is 127.0.0.1.

    Returns:
        Host and port.

    Raises:
        UsageError: It is no address, or one that others than this machine can reach.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f'address "{text}"; expected host:port, such as 127.0.0.1:4317')
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not _is_loopback(host):
        raise UsageError(
            f'address "{text}" can be reached from other machines, and nothing here asks who sends; '
            "expected a loopback address: put a stock Collector in front"
        )
    return host, int(port)


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


def _receivers(node: Node) -> tuple[Endpoint | None, Endpoint | None]:
    receivers = node.mapping("receiver", ("otlp",))
    if "otlp" not in receivers:
        raise node.error("no receiver; expected otlp")
    otlp = receivers["otlp"]
    protocols = otlp.mapping("key", ("protocols",)).get("protocols", otlp)
    found = protocols.mapping("protocol", ("grpc", "http")) if protocols is not otlp else {}
    if not found:
        raise protocols.error("no protocol; expected grpc, http or both")
    return (
        _endpoint(found["grpc"], 4317, "max_recv_msg_size_mib", _MIB) if "grpc" in found else None,
        _endpoint(found["http"], 4318, "max_request_body_size", 1) if "http" in found else None,
    )


def _endpoint(node: Node, port: int, limit_key: str, unit_bytes: int) -> Endpoint:
    keys = node.mapping("key", ("endpoint", limit_key))
    host = "127.0.0.1"
    if "endpoint" in keys:
        try:
            host, port = parse_address(keys["endpoint"].text())
        except UsageError as error:
            raise keys["endpoint"].error(str(error)) from None
    if limit_key not in keys:
        return Endpoint(host, port)
    return Endpoint(host, port, positive(keys[limit_key]) * unit_bytes)


def _processor(node: Node, default: CollectorConfig) -> tuple[Path, float]:
    processors = node.mapping("processor", ("duckdb",))
    if "duckdb" not in processors:
        raise node.error("no processor; expected duckdb")
    keys = processors["duckdb"].mapping("key", ("directory", "flush_interval"))
    directory = Path(keys["directory"].text()) if "directory" in keys else default.directory
    interval_s = duration_s(keys["flush_interval"]) if "flush_interval" in keys else default.flush_interval_s
    return directory, interval_s


def _pipelines(node: Node, exporters: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """For each signal that is received the exporters that get it."""
    service = node.mapping("key", ("pipelines",))
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
