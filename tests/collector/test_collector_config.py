"""Tests of the files in collector-config/: ours are read by ours, others are what their documentation asks for."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from stepmeter.cli import main
from stepmeter.collector.config import read_config

DIRECTORY = Path(__file__).parents[2] / "collector-config"
OURS = ("local.yaml", "forward.yaml", "open.yaml")
STOCK = ("stock-agent.yaml", "stock-gateway.yaml", "jaeger-v2.yaml")


def plain(name):
    """A file as data, with variables replaced by their defaults."""
    text = re.sub(r"\$\{(?:env:)?\w+:-([^}]*)\}", r"\1", (DIRECTORY / name).read_text())
    assert "${" not in text
    return yaml.safe_load(text)


@pytest.mark.parametrize("name", OURS)
def test_our_files_are_read_by_our_collector(name, tmp_path):
    """Each file for our collector is a valid configuration with all three signals."""
    (tmp_path / "x.pem").touch()
    environ = {"CERT_FILE": str(tmp_path / "x.pem"), "KEY_FILE": str(tmp_path / "x.pem"), "STEPMETER_TOKEN": "t"}
    config = read_config(DIRECTORY / name, environ)
    assert config.signals == ("traces", "metrics", "logs")


def test_forward_sends_each_signal_where_it_can_be_read():
    """forward.yaml sends everything to the gateway and metrics to Prometheus, in order."""
    gateway, prometheus = read_config(DIRECTORY / "forward.yaml", {}).destinations
    assert (gateway.protocol, gateway.secure, gateway.signals) == ("grpc", False, ("traces", "metrics", "logs"))
    assert (prometheus.signals, prometheus.consumers) == (("metrics",), 1)
    assert prometheus.url("metrics") == "http://localhost:9090/api/v1/otlp/v1/metrics"


@pytest.mark.parametrize("name", STOCK)
def test_pipelines_of_stock_files_name_what_is_there(name):
    """Every component that a pipeline of a stock Collector's file names is declared, and every declared one is used."""
    config = plain(name)
    for kind in ("receivers", "processors", "exporters"):
        named = {item for pipeline in config["service"]["pipelines"].values() for item in pipeline.get(kind, [])}
        assert named == set(config.get(kind, {}))
    assert set(config["service"].get("extensions", [])) == set(config.get("extensions", {}))


def test_the_gateway_takes_every_signal_that_the_agent_sends():
    """What an agent sends has a pipeline in the gateway: a signal without one would be refused for good."""
    agent, gateway = (plain(name)["service"]["pipelines"] for name in STOCK[:2])
    sent = {signal for signal, pipeline in agent.items() if "otlp/gateway" in pipeline["exporters"]}
    assert sent == set(gateway) == {"traces", "metrics", "logs"}


def test_exporters_have_names_that_old_and_new_collectors_take():
    """The stock files use the exporter names from before the renaming, which later Collectors keep as aliases."""
    for name in STOCK[:2]:
        types = {exporter.partition("/")[0] for exporter in plain(name)["exporters"]}
        assert types <= {"otlp", "otlphttp", "file"}


def test_backends_listen_where_ours_sends():
    """The ports of the Jaeger and Tempo files are those to which forward.yaml sends by default."""
    gateway, _ = read_config(DIRECTORY / "forward.yaml", {}).destinations
    tempo = plain("tempo.yaml")["distributor"]["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    jaeger = plain("jaeger-v2.yaml")["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"]
    assert gateway.endpoint == tempo == jaeger
    assert plain("prometheus.yaml")["otlp"]["promote_resource_attributes"]


def test_the_sidecar_starts_before_the_training_and_is_found_by_it():
    """The collector of the pod is a native sidecar, and the training sends to its port on loopback."""
    pod = plain("kubernetes-sidecar.yaml")["spec"]
    (sidecar,), (training,) = pod["initContainers"], pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["command"][:2] == ["stepmeter", "collect"]
    environ = {entry["name"]: entry.get("value") for entry in training["env"]}
    assert environ["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4317"


def test_the_unit_starts_a_command_that_there_is(capsys):
    """The systemd unit runs `stepmeter collect` with a file of this directory, and gives it time to drain."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str
    unit.read(DIRECTORY / "stepmeter-collect.service")
    command = unit["Service"]["ExecStart"].split()
    assert command[1:3] == ["collect", "--config"]
    assert (DIRECTORY / Path(command[3]).name).exists()
    assert int(unit["Service"]["TimeoutStopSec"]) > 60
    with pytest.raises(SystemExit):
        main(["collect", "--help"])
    assert "--config" in capsys.readouterr().out


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze here")
def test_systemd_finds_nothing_to_say_about_the_unit():
    """Systemd's own checker accepts the unit, but for the program that is not installed here."""
    unit = DIRECTORY / "stepmeter-collect.service"
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "is not executable" not in line and "stepmeter" in line] == []


def test_every_file_says_what_it_was_run_against():
    """Each file says in its head whether it was run against the real thing."""
    for file in DIRECTORY.iterdir():
        head = " ".join(line for line in file.read_text().splitlines() if line.startswith("#"))
        assert re.search(r"[Rr]un in tests|[Nn]ot run|[Tt]ests run|what `stepmeter run` starts", head), file.name
