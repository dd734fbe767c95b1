import sys
from importlib import metadata

import pytest

from stepmeter.runtime.distro import DEFAULTS, StepmeterConfigurator, StepmeterDistro

PYTESTS_OWN = {"PYTEST_CURRENT_TEST"}


@pytest.fixture
def environ(monkeypatch):
    """An environment of its own in place of the process's."""
    made = {}
    monkeypatch.setattr("os.environ", made)
    monkeypatch.setattr(sys, "orig_argv", ["python", "train.py"])
    return made


def test_only_sets_what_the_user_did_not(environ):
    """The user's own settings stay; the rest gets a default."""
    environ.update({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_TRACES_EXPORTER": "console"})
    StepmeterDistro().configure()

    assert (environ["OTEL_EXPORTER_OTLP_PROTOCOL"], environ["OTEL_TRACES_EXPORTER"]) == ("http/protobuf", "console")
    assert DEFAULTS["OTEL_METRIC_EXPORT_INTERVAL"] == environ["OTEL_METRIC_EXPORT_INTERVAL"]


def test_settles_the_run_for_the_children(environ):
    """A process without a run id makes one and leaves it in the environment of those that it starts."""
    StepmeterDistro().configure()

    assert environ["STEPMETER_RUN_ID"]


def test_switched_off_touches_nothing(environ):
    """Switched off, the distribution leaves the environment as it was and configures no SDK."""
    environ["STEPMETER_DISABLED"] = "1"
    StepmeterDistro().configure()
    StepmeterConfigurator().configure()

    assert {"STEPMETER_DISABLED"} == set(environ) - PYTESTS_OWN


def test_helpers_are_left_alone(environ, monkeypatch):
    """In a helper process nothing is set and nothing configured."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"])
    StepmeterDistro().configure()
    StepmeterConfigurator().configure()

    assert not set(environ) - PYTESTS_OWN


@pytest.mark.parametrize(
    "group",
    [
        "opentelemetry_distro",
        "opentelemetry_configurator",
        "opentelemetry_pre_instrument",
        "opentelemetry_instrumentor",
        "opentelemetry_resource_detector",
    ],
)
def test_entry_points_load(group):
    """Every entry point of ours is installed and loads."""
    ours = [entry for entry in metadata.entry_points(group=group) if entry.value.startswith("stepmeter.")]

    assert ours
    assert all(callable(entry.load()) for entry in ours)


@pytest.mark.parametrize(
    ("exporter", "local_rank", "port", "expected"),
    [
        ("prometheus", "2", None, "9466"),
        ("otlp,prometheus", "1", "9000", "9001"),
        ("prometheus", "0", "9000", "9000"),
        ("prometheus", "1", "nonsense", "nonsense"),
        ("otlp", "1", "9000", "9000"),
    ],
)
def test_each_rank_listens_on_a_port_of_its_own(environ, exporter, local_rank, port, expected):
    """Ranks of one host that are scraped by Prometheus listen on the port plus their local rank."""
    environ.update({"OTEL_METRICS_EXPORTER": exporter, "LOCAL_RANK": local_rank})
    if port:
        environ["OTEL_EXPORTER_PROMETHEUS_PORT"] = port
    StepmeterDistro().configure()

    assert environ["OTEL_EXPORTER_PROMETHEUS_PORT"] == expected


def test_launchers_only_name_the_run(environ, monkeypatch):
    """A launcher such as torchrun settles the run for its ranks and is itself left alone."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "/bin/torchrun", "train.py"])
    StepmeterDistro().configure()
    StepmeterConfigurator().configure()

    assert {"STEPMETER_RUN_ID"} == set(environ) - PYTESTS_OWN
