"""`stepmeter doctor`: what is installed, which device, is the endpoint reachable, does a round trip work."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.parse import urlparse

import stepmeter
from stepmeter.conventions import environment
from stepmeter.errors import CheckFailedError, StepmeterError

SUMMARY = "check the installation: packages, device, endpoint, and a round trip through a collector"
EXAMPLE = "stepmeter doctor"

_DEFAULT_ENDPOINT = "http://localhost:4317"
_CONNECT_TIMEOUT_S = 2.0
_MARKS = {"ok": "ok", "note": "--", "bad": "!!"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        what: What was looked at.
        state: `ok`, `note` for what may be intended, `bad` for what will not work.
        found: What was found.
        advice: What to do; empty when nothing.
    """

    what: str
    state: Literal["ok", "note", "bad"]
    found: str
    advice: str = ""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Look at everything.

    Args:
        arguments: Those declared by `configure`.

    Returns:
        0 when nothing is bad.

    Raises:
        CheckFailedError: Something will not work.
    """
    findings = []
    for finding in examine(os.environ):
        findings.append(finding)
        if not arguments.json:
            advice = f"  -> {finding.advice}" if finding.advice else ""
            print(f"{_MARKS[finding.state]}  {finding.what}: {finding.found}{advice}", flush=True)
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    bad = [finding.what for finding in findings if finding.state == "bad"]
    if bad:
        raise CheckFailedError(f"{len(bad)} of {len(findings)} checks failed: {', '.join(bad)}")
    return 0


def examine(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at one thing after another.

    Args:
        environ: The environment.

    Yields:
        What was found, as it is found.
    """
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield Finding("stepmeter", "ok", stepmeter.__version__)
    yield _package("torch", "install torch in this Python, or run stepmeter with the Python that has it")
    yield _package("opentelemetry-sdk")
    yield _package("duckdb")
    yield _switch(environ)
    yield _distribution(environ)
    yield _device(environ)
    yield _directory(environ)
    yield _endpoint(environ)
    yield _round_trip()


def _package(name: str, advice: str = "reinstall stepmeter") -> Finding:
    try:
        return Finding(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, "note" if name == "torch" else "bad", "not installed", advice)


def _switch(environ: Mapping[str, str]) -> Finding:
    for name in (environment.DISABLED, "OTEL_SDK_DISABLED"):
        if environment.is_true(environ, name):
            return Finding("switch", "note", f"{name}={environ[name]} turns all telemetry off", f"unset {name}")
    return Finding("switch", "ok", "on")


def _distribution(environ: Mapping[str, str]) -> Finding:
    names = sorted({entry.name for entry in metadata.entry_points(group="opentelemetry_distro")})
    chosen = environ.get("OTEL_PYTHON_DISTRO")
    if "stepmeter" not in names:
        return Finding("distribution", "bad", "stepmeter's entry points are not installed", "reinstall stepmeter")
    if len(names) > 1 and chosen is None:
        others = ", ".join(name for name in names if name != "stepmeter")
        advice = "set OTEL_PYTHON_DISTRO=stepmeter OTEL_PYTHON_CONFIGURATOR=stepmeter under opentelemetry-instrument"
        return Finding("distribution", "note", f"{others} is installed too; which one wins is undefined", advice)
    return Finding("distribution", "ok", chosen or "stepmeter")


def _device(environ: Mapping[str, str]) -> Finding:
    from stepmeter.devices.nvml import find_device

    lookup = find_device(environ, 0)
    if lookup.device is None:
        return Finding("GPU", "note", f"none: {lookup.reason}")
    return Finding("GPU", "ok", f"{lookup.device.name}, {lookup.device.uuid}, driver {lookup.device.driver_version}")


def _directory(environ: Mapping[str, str]) -> Finding:
    directory = Path(environ.get(environment.DIR) or environment.DEFAULT_DIR).absolute()
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if os.access(existing, os.W_OK | os.X_OK) and existing.is_dir():
        return Finding("directory of runs", "ok", str(directory))
    return Finding("directory of runs", "bad", f"{directory} can't be written", f"set {environment.DIR} or use --dir")


def _endpoint(environ: Mapping[str, str]) -> Finding:
    given = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    url = urlparse(given or _DEFAULT_ENDPOINT)
    try:
        address = (url.hostname or "", url.port or (443 if url.scheme == "https" else 4317))
        with socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S):
            return Finding("OTLP endpoint", "ok", f"{given or _DEFAULT_ENDPOINT} answers")
    except (OSError, ValueError) as error:
        found = f"{given or _DEFAULT_ENDPOINT} does not answer ({error})"
    if given is None:
        return Finding("OTLP endpoint", "note", found, "`stepmeter run` brings its own; or start `stepmeter collect`")
    return Finding("OTLP endpoint", "bad", found, "start the backend or correct OTEL_EXPORTER_OTLP_ENDPOINT")


def _round_trip() -> Finding:
    what = "round trip"
    with tempfile.TemporaryDirectory(prefix="stepmeter-doctor-") as directory:
        try:
            spans, points = _send_and_read_back(Path(directory))
        except StepmeterError as error:
            return Finding(what, "bad", str(error), "see the line above it, or run `stepmeter collect` by hand")
    if (spans, points) == (1, 1):
        return Finding(what, "ok", "one span and one metric went through a collector and were read back")
    return Finding(what, "bad", f"{spans} of 1 spans and {points} of 1 points came back", "report this as a bug")


def _without_endpoint(environ: Mapping[str, str]) -> dict[str, str]:
    """The probe is for the collector here, not for a backend that it would be passed on to."""
    return {name: value for name, value in environ.items() if not name.startswith(("OTEL_EXPORTER_", "STEPMETER_RUN"))}


def _send_and_read_back(directory: Path) -> tuple[int, int]:
    from stepmeter.commands.launch import start_collector, stop_collector
    from stepmeter.store.reader import open_run
    from stepmeter.telemetry.probe import send_probe

    collector = start_collector(directory, "doctor", _without_endpoint(os.environ))
    with contextlib.ExitStack() as stack:
        stack.callback(stop_collector, collector)
        if not send_probe(collector.grpc, collector.run_id):
            raise StepmeterError("the collector did not acknowledge")
    with open_run(collector.run_dir) as run:
        snapshot = run.snapshot()
        return (
            snapshot.rows("SELECT count(*) FROM raw.spans")[0][0],
            snapshot.rows("SELECT count(*) FROM raw.metric_points")[0][0],
        )
