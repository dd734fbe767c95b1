import contextlib
import json
import subprocess
import sys

import pytest
from tests.support.processes import TINY, clean_environ, query, stepmeter

from stepmeter.commands.destinations import forward_arguments

GENERAL = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, []),
        ({GENERAL: "http://b:4317"}, ["traces=grpc://b:4317", "metrics=grpc://b:4317", "logs=grpc://b:4317"]),
        (
            {GENERAL: "https://b", "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "console"},
            ["traces=grpcs://b"],
        ),
        (
            {GENERAL: "http://b:4318/", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_LOGS_EXPORTER": ""},
            ["traces=http://b:4318/v1/traces", "metrics=http://b:4318/v1/metrics"],
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/otlp/x",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            ["traces=http://b/otlp/x"],
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "b:4317"}, ["traces=grpc://b:4317"]),
    ],
)
def test_endpoints_become_destinations(environ, expected):
    """The user's OTLP endpoints, general or of one signal, become what the collector passes telemetry on to."""
    arguments = forward_arguments(environ)

    assert expected == arguments[1::2]
    assert {"--forward"} >= set(arguments[::2])


def test_headers_are_named_and_not_quoted():
    """The collector is told which variable holds the headers, so that a token is not in the process list."""
    arguments = forward_arguments({GENERAL: "http://b:4317", "OTEL_EXPORTER_OTLP_HEADERS": "authorization=secret"})

    assert arguments[-2:] == ["--forward-headers-from", "OTEL_EXPORTER_OTLP_HEADERS"]
    assert not [argument for argument in arguments if "secret" in argument]


@contextlib.contextmanager
def backend(tmp_path):
    """Somebody else's backend: a collector of its own."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "stepmeter.cli", "collect", "--dir", str(tmp_path / "theirs")),
            *("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json", "--until-stdin-closes"),
        ],
        env=clean_environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        yield json.loads(process.stdout.readline())["grpc"]
        process.stdin.close()
        process.wait(30)


def test_the_users_backend_keeps_getting_everything(tmp_path):
    """Under `stepmeter run` the endpoint that was configured before gets the same steps as the run's own store."""
    with backend(tmp_path) as address:
        done = stepmeter("run", "--quiet", TINY, "--steps", 5, cwd=tmp_path, **{GENERAL: f"http://{address}"})

    assert (done.returncode, done.stderr) == (0, "")
    count = "SELECT count(*), max(step) FROM steps"
    assert [(5, 5)] == query(tmp_path / "stepmeter-runs" / "tiny", count) == query(tmp_path / "theirs" / "tiny", count)
