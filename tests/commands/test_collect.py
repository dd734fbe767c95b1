"""Tests of what the how-to page on collectors shows."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.backends import grpc_backend, http_backend
from tests.support.otlp import collector_process, metrics, post, step_span, traces
from tests.support.processes import stepmeter

from stepmeter import cli
from stepmeter.cli import COMMANDS

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "collector.md").read_text(encoding="utf-8")
COMMAND_LINES = re.findall(r"(?:^|`)stepmeter ((?:collect|runs|seal|relink|prune|ingest)[^`\n]*)", PAGE, re.MULTILINE)


def test_commands_of_the_page_are_read():
    """Every command line of the page is one that the parser takes."""
    assert {line.split()[0] for line in COMMAND_LINES} == {"collect", "runs", "seal", "relink", "prune", "ingest"}
    for line in COMMAND_LINES:
        words = line.replace("RUN", "demo").replace("F…", "f.jsonl").split()
        assert words[0] in COMMANDS
        assert cli._parser(words).parse_args(words)


def test_the_forwarding_command_does_what_the_page_says(tmp_path, monkeypatch):
    """Traces go to the one place, metrics to the exact URL of the other, with headers from the environment."""
    monkeypatch.setenv("SECRETS", "x-key=a%20b")
    with grpc_backend() as jaeger, http_backend() as prometheus:
        forwards = [
            *("--forward", f"traces=grpc://{jaeger.address}"),
            *("--forward", f"metrics=http://{prometheus.address}/api/v1/otlp/v1/metrics"),
            *("--forward-headers-from", "SECRETS"),
        ]
        with collector_process(tmp_path, *forwards) as running:
            assert post(running.http, traces(step_span(1)).SerializeToString()).status == 200
            assert post(running.http, metrics()[0].SerializeToString(), path="/v1/metrics").status == 200
            assert running.stop()[0] == 0
    assert len(jaeger.bodies) == 1
    assert jaeger.headers[0]["x-key"] == "a b"
    assert prometheus.paths == ["/api/v1/otlp/v1/metrics"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--forward", "localhost:4317"], "expected grpc://host:port"),
        (["--forward-header", "secret"], "expected name=value"),
        (["--http", "0.0.0.0:4318"], "can be reached from other machines"),
    ],
)
def test_a_wrong_argument_is_one_line(tmp_path, arguments, message):
    """What keeps a collector from starting is one line and code 2."""
    command = [sys.executable, "-m", "stepmeter.cli", "collect", "--dir", str(tmp_path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr


def test_a_port_that_is_taken_is_one_line(tmp_path):
    """What gRPC itself has to say of it means nothing to whoever typed the command."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = stepmeter("collect", "--dir", tmp_path, "--grpc", address, "--http", "127.0.0.1:0", cwd=tmp_path)

    expected = (
        f"stepmeter: can't listen on {address} for gRPC: the address is taken or not ours; choose another with --grpc\n"
    )
    assert (done.returncode, done.stderr) == (1, expected)
