"""How a program ends beside a backend that is down or never answers: as it would alone, and soon."""

import socket
import subprocess
import sys
import time

import pytest
from tests.support.processes import BIN, TINY, clean_environ

pytestmark = pytest.mark.slow
INSTRUMENT = str(BIN / "opentelemetry-instrument")


def run(*words, **environ):
    done = subprocess.run(
        list(map(str, words)), env=clean_environ(**environ), capture_output=True, text=True, timeout=100, check=False
    )
    return done, time.time()


def own_lines(done):
    """What the program itself wrote to stderr, our lines and paths of ours in its traceback left out."""
    return [line for line in done.stderr.splitlines() if not line.startswith(("stepmeter: ", "  "))]


@pytest.mark.parametrize("end", ["raise", "exit3", "os_exit", "sigterm", "sigint"])
def test_a_program_ends_as_it_would_alone(end):
    """Exit code, output and last words are those of the program alone, whichever way it ends, with a dead backend."""
    words = (sys.executable, TINY, "--steps", 5, "--end", end)
    alone, _ = run(*words)
    done, _ = run(INSTRUMENT, *words, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")

    assert (done.returncode, done.stdout) == (alone.returncode, alone.stdout)
    assert own_lines(done) == own_lines(alone)
    assert sum("not delivered" in line for line in done.stderr.splitlines()) <= 1


def test_an_exception_at_import_is_the_programs_own(tmp_path):
    """A program that fails before it trains ends with its own code and words, and nothing of ours."""
    script = tmp_path / "broken.py"
    script.write_text("import torch\nimport no_such_module\n", encoding="utf-8")
    alone, _ = run(sys.executable, script)
    done, _ = run(INSTRUMENT, sys.executable, script, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")

    assert (done.returncode, done.stderr) == (alone.returncode, alone.stderr)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("backend", ["dead", "black hole"])
def test_our_share_of_the_end_is_bounded(tmp_path, protocol, backend):
    """What our exit hook takes is below its limit, whatever the backend does; the rest of the exit is Python's."""
    script = tmp_path / "timed.py"
    script.write_text(
        "import time\n"
        "from stepmeter.runtime import session\n"
        "own = session.current_session()\n"
        "end = own.end\n"
        "def timed():\n"
        "    began = time.monotonic()\n"
        "    end()\n"
        "    print('took', time.monotonic() - began, session.EXIT_LIMIT_S, flush=True)\n"
        "import atexit\n"
        "atexit.register(timed)\n"
        f"import runpy, sys; sys.argv = [{TINY!r}, '--steps', '12']\n"
        f"runpy.run_path({TINY!r}, run_name='__main__')\n",
        encoding="utf-8",
    )
    with socket.create_server(("127.0.0.1", 0)) as hole:
        port = 9 if backend == "dead" else hole.getsockname()[1]
        done, _ = run(
            *(INSTRUMENT, sys.executable, script),
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{port}",
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )

    assert done.returncode == 0, done.stderr
    took_s, limit_s = map(float, done.stdout.split()[-2:])
    assert took_s < limit_s + 1.0  # the machine may be busy; `make bench` measures
    assert sum("not delivered" in line for line in done.stderr.splitlines()) == 1
