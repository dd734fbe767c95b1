"""The pages on Hugging Face and Accelerate, and what their commands leave in the store."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.processes import BIN, clean_environ, query
from tests.support.spy import spying

ROOT = Path(__file__).parent.parent.parent
OFFLINE = {"HF_HUB_OFFLINE": "1"}

pytestmark = pytest.mark.slow  # half a minute each: transformers takes ten seconds to import


def follow(page, directory):
    """Run a page's commands one after the other, as a reader would; gives what each wrote to stderr."""
    (directory / "examples").symlink_to(ROOT / "examples")
    environ = clean_environ(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", **OFFLINE)
    said = []
    for command in re.findall(
        r"^ {4}\$ (.+)$", (ROOT / "docs/how-to" / page).read_text(encoding="utf-8"), re.MULTILINE
    ):
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=directory,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        said.append(done.stderr)
    return said


def phases(run):
    """Regions of each phase in a step; of fast steps only some have spans of their phases."""
    counts = dict(query(run, "SELECT phase, count(*) FROM spans WHERE phase IS NOT NULL GROUP BY phase"))
    return {phase: count / counts["optimizer"] for phase, count in counts.items()}


def test_the_hugging_face_page(tmp_path):
    """The page's commands work: ten steps of four micro-batches by the Trainer, twelve of two by SFTTrainer."""
    said = follow("huggingface.md", tmp_path)
    runs = tmp_path / "stepmeter-runs"
    groups = "SELECT count(*), min(microbatches), max(microbatches), sum(samples), sum(tokens) FROM steps"

    assert query(runs / "trainer", groups) == [(10, 4, 4, 320, 320 * 32)]
    assert phases(runs / "trainer") == {"input_wait": 4, "forward": 4, "backward": 4, "optimizer": 1}
    assert query(runs / "sft", groups)[0][:4] == (12, 2, 2, 96)
    assert phases(runs / "sft") == {"input_wait": 2, "forward": 2, "backward": 2, "optimizer": 1}
    assert not [line for text in said for line in text.splitlines() if "goes on without" in line]


def test_the_accelerate_page(tmp_path):
    """The page's commands work: forty steps alone, twenty on each of two ranks that `accelerate launch` starts."""
    follow("accelerate.md", tmp_path)
    runs = tmp_path / "stepmeter-runs"
    by_rank = (
        "SELECT rank, strategy, count(*), min(microbatches), max(microbatches) FROM steps GROUP BY ALL ORDER BY rank"
    )

    assert query(runs / "accelerate", by_rank) == [(0, "single", 40, 2, 2)]
    assert query(runs / "launched", by_rank) == [(rank, "ddp", 20, 2, 2) for rank in (0, 1)]
    assert query(runs / "launched", "SELECT count(DISTINCT pid) FROM raw.resources") == [(2,)]
    assert phases(runs / "launched") == {"input_wait": 2, "forward": 2, "backward": 2, "optimizer": 1}


def test_opentelemetry_instrument():
    """Under `opentelemetry-instrument` a backend gets a span for each step of the trainer."""
    with spying() as spy:
        done = subprocess.run(
            [BIN / "opentelemetry-instrument", "python", ROOT / "examples/train_hf_trainer.py", "--cpu"],
            env=clean_environ(
                PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}",
                OTEL_EXPORTER_OTLP_ENDPOINT=spy.endpoint,
                OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
                **OFFLINE,
            ),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert "stepmeter: " not in done.stderr
    assert sum(span.name == "step" for _, _, span in spy.spans) == 10
