import subprocess
import sys

import pytest

HEAVY = {
    "numpy",
    "duckdb",
    "rich",
    "grpc",
    "torch",
    "pyarrow",
    "opentelemetry.sdk",
    "yaml",
    "psutil",
    "wrapt",
    "pynvml",
}
TRAINING_SIDE_FORBIDS = {"numpy", "duckdb", "rich", "pyarrow", "torch"}


def modules_after(code):
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_stepmeter_loads_nothing_heavy():
    """`import stepmeter` loads no numpy, duckdb, rich, grpc, torch or OpenTelemetry SDK."""
    assert not HEAVY & modules_after("import stepmeter")


@pytest.mark.parametrize("room", ["runtime.session", "runtime.entry", "telemetry.pipeline", "telemetry.setup"])
def test_training_side_stays_light(room):
    """What is loaded into a training process brings no numpy, duckdb, rich, pyarrow and no torch."""
    assert not TRAINING_SIDE_FORBIDS & modules_after(f"import stepmeter.{room}")


@pytest.mark.parametrize("room", ["store.reader", "analysis.step_time.pipeline", "report.summary"])
def test_reading_side_needs_no_training_side(room):
    """Reading a run loads neither torch nor the OpenTelemetry SDK."""
    assert not {"torch", "opentelemetry.sdk"} & modules_after(f"import stepmeter.{room}")


def test_starting_in_a_process_without_torch_imports_no_torch():
    """The entry point imports nothing that the program does not import."""
    code = "from stepmeter.runtime.entry import pre_instrument; pre_instrument()"

    assert not TRAINING_SIDE_FORBIDS & modules_after(code)
