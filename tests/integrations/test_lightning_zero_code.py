"""Lightning programs that know nothing of stepmeter, started as a user starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import BIN, PROGRAMS, clean_environ, query, stepmeter

ROOT = Path(__file__).parent.parent.parent
EXAMPLE = ROOT / "examples" / "train_lightning.py"
STEPS = "SELECT step, microbatches, samples FROM steps ORDER BY step"


def run(*words, cwd, **environ):
    return subprocess.run(
        list(map(str, words)),
        cwd=cwd,
        env=clean_environ(**environ),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_stepmeter_run(tmp_path):
    """Under `stepmeter run` the unchanged example gives a step an accumulation group, with all its phases."""
    done = stepmeter("run", "--name", "digits", EXAMPLE, "--epochs", 1, "--batch-size", 150, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "3 updates: loss" in done.stdout
    directory = tmp_path / "stepmeter-runs" / "digits"
    assert query(directory, STEPS) == [(1, 4, 600), (2, 4, 600), (3, 2, 300)]
    phases = query(directory, "SELECT phase FROM step_phases WHERE step = 1 AND cpu_ns > 0 ORDER BY phase")
    assert [phase for (phase,) in phases] == ["backward", "forward", "input_wait", "optimizer"]


@pytest.mark.slow
def test_two_ranks(tmp_path):
    """Ranks that Lightning starts itself are ranks of one run, with equal steps."""
    words = ("--epochs", 1, "--batch-size", 75, "--devices", 2, "--strategy", "ddp")
    done = stepmeter("run", "--name", "digits", EXAMPLE, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = query(
        tmp_path / "stepmeter-runs" / "digits",
        "SELECT rank, step, microbatches, strategy, world_size FROM steps ORDER BY rank, step",
    )
    assert rows == [(rank, step, 4 if step < 3 else 2, "ddp", 2) for rank in (0, 1) for step in (1, 2, 3)]


@pytest.mark.slow
def test_forked_ranks(tmp_path):
    """Ranks that are forked, as in a notebook, train as they would alone; in a forked child nothing is recorded."""
    words = ("--epochs", 1, "--batch-size", 75, "--devices", 2, "--strategy", "ddp_fork")
    alone = run(sys.executable, EXAMPLE, *words, cwd=tmp_path)
    done = stepmeter("run", "--name", "digits", EXAMPLE, *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert alone.stdout.splitlines()[-1] in done.stdout
    assert query(tmp_path / "stepmeter-runs" / "digits", "SELECT count(*) FROM steps") == [(0,)]


@pytest.mark.slow
def test_opentelemetry_instrument(tmp_path):
    """Under `opentelemetry-instrument` it prints what it prints alone; steps that nobody takes are lost aloud."""
    words = (sys.executable, EXAMPLE, "--epochs", 1, "--batch-size", 150)
    alone = run(*words, cwd=tmp_path)
    done = run(BIN / "opentelemetry-instrument", *words, cwd=tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (0, alone.stdout)
    assert [line for line in done.stderr.splitlines() if "stepmeter: not delivered" in line]
    assert "failed and goes on without" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("disabled", "wrapped"), [("", "True"), ("1", "False")])
def test_disabled(tmp_path, disabled, wrapped):
    """With STEPMETER_DISABLED nothing stands in Lightning; without, its Trainer is followed from its import on."""
    program = "import lightning.pytorch as pl; print(hasattr(pl.Trainer._run, '__wrapped__'))"
    done = run(
        *(BIN / "opentelemetry-instrument", sys.executable, "-c", program),
        cwd=tmp_path,
        STEPMETER_DISABLED=disabled,
        OTEL_TRACES_EXPORTER="none",
        OTEL_METRICS_EXPORTER="none",
    )
    assert (done.returncode, done.stdout.split()) == (0, [wrapped])


def test_nothing_is_imported_for_trainers_that_a_program_does_not_use(tmp_path):
    """A program that trains without a trainer imports none, nor our files about them."""
    program = (
        "import sys, torch\n"
        "trainers = {'lightning', 'pytorch_lightning', 'transformers', 'accelerate'}\n"
        "print([name for name in sys.modules if name.split('.')[0] in trainers])\n"
        "print([name for name in sys.modules if name.startswith('stepmeter.integrations.')])\n"
    )
    done = run(
        *(BIN / "opentelemetry-instrument", sys.executable, "-c", program),
        cwd=tmp_path,
        OTEL_TRACES_EXPORTER="none",
        OTEL_METRICS_EXPORTER="none",
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["[]", "[]"])


@pytest.mark.slow
def test_several_frameworks_in_one_process(tmp_path):
    """A plain loop, Lightning, Hugging Face, Lightning and a plain loop give, one after the other, each its steps."""
    done = stepmeter(*("run", PROGRAMS / "frameworks.py", tmp_path / "out"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wanted = ["plain 3", "lightning 3", "transformers 2", "lightning 1", "plain 2"]
    assert [line for line in done.stdout.splitlines() if line in wanted] == wanted
    rows = query(tmp_path / "stepmeter-runs" / "frameworks", STEPS)
    assert [microbatches for _, microbatches, _ in rows] == [1, 1, 1, 4, 4, 2, 2, 2, 4, 1, 1]
    assert "failed and goes on without" not in done.stderr


VERSIONS = [("pytorch-lightning", "2.0.0", "pytorch_lightning"), ("lightning", "2.1.0", "lightning.pytorch")]


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    """Installs a version beside the newest, for the torch that is there; gives the directory."""

    def install(*packages):
        directory = tmp_path_factory.mktemp("old")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(directory)]
        # its namespace packages need what setuptools has had until 80
        done = run(*pip, *packages, "setuptools==80.9.0", cwd=directory, PIP_DISABLE_PIP_VERSION_CHECK="1")
        if done.returncode:
            pytest.skip(f"can't install {packages}: {done.stderr[-300:]}")
        return directory

    return install


@pytest.mark.slow
@pytest.mark.parametrize(("distribution", "version", "package"), VERSIONS)
@pytest.mark.timeout(600)
def test_lowest_versions(old, distribution, version, package):
    """On the lowest versions that run with this torch all the same holds."""
    environ = {"PYTHONPATH": str(old(f"{distribution}=={version}")), "STEPMETER_TEST_LIGHTNING": package}
    files = [f"tests/integrations/test_lightning{name}.py" for name in ("", "_harmless")]
    done = subprocess.run(
        [*(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "ignore", "-m", "not slow", "-q"), *files],
        cwd=ROOT,
        env={**os.environ, **clean_environ(), **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
def test_lightning_1(old, tmp_path):
    """In Lightning 1, whose loops are others, the rule for plain loops gives the same groups."""
    script = tmp_path / "one.py"
    example = EXAMPLE.read_text(encoding="utf-8")
    script.write_text(
        example.replace("import lightning\n", "import pytorch_lightning as lightning\n")
        .replace(", verbose=False", "")
        .replace("        strategy=args.strategy,\n", "")
        .replace("(self, batch):", "(self, batch, batch_idx):")
    )
    directory = old("pytorch-lightning==1.9.5")
    done = stepmeter(
        *("run", script, "--epochs", 1, "--batch-size", 150),
        cwd=tmp_path,
        PYTHONPATH=str(directory),
    )
    assert done.returncode == 0, done.stderr
    rows = query(tmp_path / "stepmeter-runs" / "one", STEPS)
    assert [microbatches for _, microbatches, _ in rows] == [4, 4, 2]
