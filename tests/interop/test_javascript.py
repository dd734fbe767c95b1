"""The official JavaScript exporters send to our collector: an encoder that shares nothing with Python's."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from pathlib import Path

import pytest
from tests.support.otlp import collector_process, wait_until

from stepmeter.store.find import find_run
from stepmeter.store.reader import open_run

PROGRAM = Path(__file__).parent / "js"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """The program, with the locked packages installed beside a copy of it."""
    directory = tmp_path_factory.mktemp("js")
    for file in PROGRAM.iterdir():
        if file.is_file():
            shutil.copy(file, directory)
    subprocess.run(["npm", "ci", "--ignore-scripts"], cwd=directory, check=True, capture_output=True, timeout=600)
    return directory / "send.mjs"


@pytest.fixture(scope="module")
def collector(tmp_path_factory):
    """A collector in a process of its own."""
    with collector_process(tmp_path_factory.mktemp("runs")) as running:
        yield running


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf", "http/json"])
def test_all_signals_of_the_javascript_exporters_are_in_the_store(client, collector, protocol, compression):
    """Spans, metrics and logs of the JavaScript SDK are stored value for value, whichever protocol carried them."""
    run_id = f"js-{protocol.replace('/', '-')}-{compression}"
    address = collector.grpc if protocol == "grpc" else collector.http
    sent = subprocess.run(
        ["node", client, protocol, address, run_id, compression],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert sent.stderr == ""  # its exporters say there what was refused
    told = json.loads(sent.stdout)
    request, call = told["spans"]
    with open_run(find_run(run_id, collector.directory)) as reader:
        for table in ("spans", "metrics", "logs"):
            wait_until(lambda table=table: reader.snapshot().rows(f"SELECT 1 FROM {table}"))  # noqa: S608 - ours
        rows = reader.snapshot().rows
        assert rows(
            "SELECT name, trace_id, span_id, parent_span_id, status_code, status_message FROM spans ORDER BY name"
        ) == [
            ("call", told["trace"], call, request, "Error", "no such file"),
            ("request", told["trace"], request, None, "Unset", None),
        ]
        assert [json.loads(found) for (found,) in rows("SELECT attributes FROM spans ORDER BY name")] == [
            {"sizes": [1, 2]},
            {"gen_ai.request.model": "m", "tokens": 3, "share": 0.5},
        ]
        assert rows("SELECT json_extract_string(events, '$[0].name') FROM spans WHERE name = 'request'") == [("token",)]
        assert rows("SELECT metric, unit, kind, value FROM metrics ORDER BY metric") == [
            ("calls", "{call}", "sum", 2.0),
            ("heat", "Cel", "gauge", 41.5),
        ]
        assert rows("SELECT metric, count, sum, bucket_counts, explicit_bounds FROM histograms") == [
            ("wait", 1, 1.5, [0, 1, 0], [1.0, 2.0])
        ]
        assert rows("SELECT body, severity_text, severity_number, service_name FROM logs") == [
            ("careful", "WARN", 13, "node")
        ]
    with urllib.request.urlopen(f"http://{collector.http}/healthz", timeout=10) as answer:
        assert "malformed" not in answer.read().decode()
