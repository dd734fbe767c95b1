import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from tests.support.processes import BIN, TINY, clean_environ

from stepmeter.conventions.metrics import METRICS
from stepmeter.conventions.registry import prometheus_name

BOARD = Path(__file__).parent.parent.parent / "dashboards" / "stepmeter-metrics.json"
GPU = ("hw_", "stepmeter_memory_peak", "stepmeter_dropped")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Debian's prometheus is not installed"),
]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@contextlib.contextmanager
def prometheus(directory, target):
    """A real Prometheus on loopback that scrapes one target each second; yields a function that asks it."""
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
        "scrape_configs": [{"job_name": "train", "static_configs": [{"targets": [target]}]}],
    }
    (directory / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ask(path, **parameters):
        url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    with process:
        yield ask
        process.terminate()


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Prometheus after it has scraped a training for some seconds."""
    directory = tmp_path_factory.mktemp("prometheus")
    target = free_port()
    with (
        prometheus(directory, f"127.0.0.1:{target}") as asking,
        subprocess.Popen(
            [str(BIN / "opentelemetry-instrument"), sys.executable, TINY, "--steps", "4000", "--sleep", "0.05"],
            env=clean_environ(
                OTEL_TRACES_EXPORTER="none",
                OTEL_METRICS_EXPORTER="prometheus",
                OTEL_EXPORTER_PROMETHEUS_PORT=str(target),
                STEPMETER_RUN_NAME="scraped",
            ),
            stdout=subprocess.DEVNULL,
        ) as training,
    ):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if asking("query", query="count_over_time(stepmeter_steps_total[1m]) > 8")["result"]:
                    break
            time.sleep(0.5)
        yield asking
        training.kill()


def queries():
    board = json.loads(BOARD.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"{panel['title']}-{target['refId']}")


@pytest.mark.parametrize("expression", list(queries()))
def test_every_query_of_the_board_returns_series(ask, expression):
    """Each PromQL expression of the dashboard parses, and those that need no GPU return series."""
    filled = expression.replace("$__rate_interval", "8s").replace("$run", ".*").replace("$rank", ".*")
    result = ask("query", query=filled)["result"]

    needs_gpu = any(part in expression for part in GPU)
    assert result or needs_gpu


def test_names_are_those_of_the_vocabulary(ask):
    """Every name of ours in Prometheus is one that the vocabulary foretells."""
    foretold = {prometheus_name(metric.name, metric.unit, metric.instrument) for metric in METRICS}
    found = {name for name in ask("label/__name__/values") if re.match(r"stepmeter_|process_|system_|hw_", name)}

    foretold |= {name.removesuffix("_ratio") for name in foretold}
    bare = {name if name in foretold else re.sub(r"_(bucket|sum|count|created)$", "", name) for name in found}
    assert "stepmeter_step_duration_seconds" in bare
    pythons_own = {name for name in bare if name.startswith("process_") and "run" not in str(ask_labels(ask, name))}
    assert bare - pythons_own - foretold == set()


def ask_labels(ask, name):
    return ask("query", query=name)["result"]


def test_series_carry_rank_and_run(ask):
    """The run's name and the rank are labels, so that a board can choose them, and the step is none."""
    (series,) = ask("query", query="stepmeter_steps_total")["result"]

    assert (series["metric"]["run"], series["metric"]["rank"]) == ("scraped", "0")
    assert "step" not in series["metric"]
