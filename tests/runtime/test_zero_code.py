import contextlib
import json
import subprocess
import sys
import time

import pytest
from tests.support.processes import BIN, TINY, clean_environ, query

from stepmeter.cli import main


@contextlib.contextmanager
def collector(tmp_path):
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "stepmeter.cli", "collect", "--dir", str(tmp_path / "runs")),
            *("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json", "--until-stdin-closes"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        yield json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(30) == 0


def instrumented(*words, **environ):
    return subprocess.run(
        [str(BIN / "opentelemetry-instrument"), sys.executable, *map(str, words)],
        env=clean_environ(**environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_opentelemetry_instrument_alone_is_enough(tmp_path, protocol):
    """The same script under opentelemetry-instrument and an OTLP endpoint gives the same steps, spans and metrics."""
    with collector(tmp_path) as addresses:
        endpoint = f"http://{addresses['grpc' if protocol == 'grpc' else 'http']}"
        done = instrumented(
            *(TINY, "--steps", 12),
            OTEL_EXPORTER_OTLP_ENDPOINT=endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            STEPMETER_RUN_NAME="zero",
        )

    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 12, "")
    run = tmp_path / "runs" / "zero"
    assert query(run, "SELECT count(*), max(step) FROM steps") == [(12, 12)]
    assert query(run, "SELECT DISTINCT phase FROM spans WHERE phase IS NOT NULL ORDER BY 1") == [
        ("backward",),
        ("forward",),
        ("input_wait",),
        ("optimizer",),
    ]
    assert {"stepmeter.steps", "stepmeter.self.cpu_time"} <= {
        name for (name,) in query(run, "SELECT DISTINCT metric FROM raw.metric_points")
    }
    assert query(run, "SELECT DISTINCT metric FROM raw.histogram_points ORDER BY 1") == [
        ("stepmeter.phase.duration",),
        ("stepmeter.step.duration",),
    ]
    assert query(
        run, "SELECT max(coalesce(int_value, double_value)) FROM raw.metric_points WHERE metric = 'stepmeter.steps'"
    ) == [(12.0,)]
    assert query(run, "SELECT count(*) FROM raw.resources WHERE clock_anchor_monotonic_ns > 0") == [(1,)]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_a_dead_backend_costs_a_line_or_two_and_no_step(protocol, tmp_path):
    """With nobody at the endpoint the program ends as it would alone, and stderr says once where its steps are."""
    done = instrumented(
        *(TINY, "--steps", 12),
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        STEPMETER_DIR=str(tmp_path),
        STEPMETER_RUN_NAME="lonely",
    )

    assert (done.returncode, len(done.stdout.splitlines())) == (0, 12)
    lines = done.stderr.splitlines()
    assert all(line.startswith("stepmeter: ") for line in lines), done.stderr
    (said,) = [line for line in lines if "not delivered: " in line]
    (kept,) = (tmp_path / "lonely" / "otlp").iterdir()
    assert f"`stepmeter ingest {kept}`" in said
    assert main(["ingest", str(kept), "--dir", str(tmp_path / "runs")]) == 0
    assert query(tmp_path / "runs" / "lonely", "SELECT count(*), max(step) FROM steps") == [(12, 12)]


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_exit_is_bounded_with_a_black_hole(protocol, tmp_path):
    """A backend that takes the connection and never answers holds the end up for seconds, not for the SDK's tens."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as hole:
        script = tmp_path / "timed.py"
        source = TINY
        script.write_text(
            "import atexit, runpy, sys, time\n"
            f"sys.argv = [{source!r}, '--steps', '12']\n"
            f"runpy.run_path({source!r}, run_name='__main__')\n"
            "print('ended', time.time(), flush=True)\n",
            encoding="utf-8",
        )
        done = instrumented(
            script,
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{hole.getsockname()[1]}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )
        took_s = time.time() - float(done.stdout.split()[-1])

    assert done.returncode == 0
    assert took_s < 12  # the SDK alone takes 16 s and more; the target of 2 s is measured by `make bench`
    assert done.stderr.count("not delivered: ") == 1


def test_disabled_instrumentations_leave_the_way_in(tmp_path):
    """With all instrumentations disabled by name, the pre-instrument entry point still brings the steps."""
    with collector(tmp_path) as addresses:
        instrumented(
            *(TINY, "--steps", 3),
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{addresses['grpc']}",
            OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="*",
            STEPMETER_RUN_NAME="zero",
        )

    assert query(tmp_path / "runs" / "zero", "SELECT count(*) FROM steps") == [(3,)]


def test_loader_workers_say_nothing(tmp_path):
    """With DataLoader workers, forked or spawned, only the training process sends, and each step once."""
    script = tmp_path / "workers.py"
    script.write_text(
        "import sys, torch\n"
        "def train(method):\n"
        "    model = torch.nn.Linear(4, 1)\n"
        "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    data = torch.utils.data.TensorDataset(torch.randn(40, 4))\n"
        "    for (batch,) in torch.utils.data.DataLoader(\n"
        "        data, batch_size=4, num_workers=2, multiprocessing_context=method\n"
        "    ):\n"
        "        optimizer.zero_grad()\n"
        "        model(batch).sum().backward()\n"
        "        optimizer.step()\n"
        "if __name__ == '__main__':\n"
        "    train('fork')\n"
        "    train('spawn')\n",
        encoding="utf-8",
    )
    with collector(tmp_path) as addresses:
        done = instrumented(
            script, OTEL_EXPORTER_OTLP_ENDPOINT=f"http://{addresses['grpc']}", STEPMETER_RUN_NAME="workers"
        )

    assert (done.returncode, done.stderr) == (0, "")
    run = tmp_path / "runs" / "workers"
    assert query(run, "SELECT count(*), count(DISTINCT step) FROM raw.steps") == [(20, 20)]
    assert query(run, "SELECT count(DISTINCT pid) FROM raw.resources") == [(1,)]
