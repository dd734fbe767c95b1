"""The agent's example as a reader would run it, its calls recorded by an instrumentation package that is not ours."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from tests.support.processes import clean_environ
from tests.support.simulated_nvml import UUID, library_directory

PACKAGES = ("openai==3.57.0", "opentelemetry-instrumentation-openai==0.62.4")
"""Not among the development packages: once installed, importing them costs every instrumented program a second."""
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SHOWN = re.findall(r"^ {4}\$ (.+)$", (ROOT / "docs" / "how-to" / "energy.md").read_text(encoding="utf-8"), re.MULTILINE)
COMMANDS = [command for command in SHOWN if command.startswith("stepmeter ") and " agent " in command]
"""The commands of the page on an agent, as it shows them."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A Python that has those packages on top of this one's."""
    home = tmp_path_factory.mktemp("agent") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "base.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES]
    subprocess.run(pip, check=True, capture_output=True, text=True, timeout=300)
    command = home / "bin" / "stepmeter"
    command.write_text(f"#!{home}/bin/python\nfrom stepmeter.cli import program\n\nprogram()\n")
    command.chmod(0o755)
    return home / "bin" / "python"


@pytest.fixture
def agent(python, tmp_path):
    """Runs the task and gives what `stepmeter energy --genai` says of it, as JSON or as text."""
    (tmp_path / "examples").symlink_to(EXAMPLES)

    def run(*words, **environ):
        around = clean_environ(PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}", **environ)
        for command in COMMANDS:
            done = subprocess.run(
                ["bash", "-c", f"{command} {' '.join(words) if command == COMMANDS[-1] else ''}"],
                cwd=tmp_path,
                env=around,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in words else done.stdout

    return run


def test_a_trainings_commands_work(python, tmp_path):
    """The page's commands for a training run one after the other, also where there is no GPU."""
    (tmp_path / "examples").symlink_to(EXAMPLES)
    around = clean_environ(PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}")
    shown = [command for command in SHOWN if " digits " in f"{command} "]
    assert len(shown) == 3
    for command in shown:
        words = ["bash", "-c", command]
        done = subprocess.run(words, cwd=tmp_path, env=around, capture_output=True, text=True, timeout=200, check=False)
        assert done.returncode == 0, done.stderr


KINDS = ["llm_call", "tool", "llm_call", "tool", "llm_call", "tool", "llm_call"]


def test_an_agents_task_is_priced(agent):
    """On a device each call and tool has its joules with bounds, and they and the rest are the whole."""
    environ = {"LD_LIBRARY_PATH": library_directory(), "SIMNVML_GPUS": "H100:0x1a", "SIMNVML_POWER": "300:1"}
    found = agent("--json", **environ)["trajectory"]
    steps = found["steps"]

    assert [step["kind"] for step in steps] == KINDS
    assert found["dropped_steps"] == []
    assert [step["usage_output_tokens"] for step in steps if step["kind"] == "llm_call"] == [200] * 4
    assert {step["model"] for step in steps if step["kind"] == "llm_call"} == {"tiny"}
    assert sum(step["energy_mj"] for step in steps) + found["unattributed_energy_mj"] == found["total_energy_mj"] > 0
    for step in steps:
        estimate = step["estimate"]
        assert estimate["lower_mj"] <= estimate["value_mj"] <= estimate["upper_mj"]
        assert estimate["lower_mj"] <= 300_000 * step_s(step) <= estimate["upper_mj"]
        assert step["energy_mj"] <= estimate["upper_mj"]
    assert found["total_generation_tokens"] == found["tokens"]["total"] == 800
    # each prompt begins as the one before it
    hits = [step["cache_hits_delta"] for step in steps if step["kind"] == "llm_call"]
    assert hits[-1] > 0
    assert [device["hw_id"] for device in found["devices"]] == [UUID]


def step_s(step):
    return (step["end_elapsed_ns"] - step["start_elapsed_ns"]) / 1e9


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_without_a_device_times_and_tokens_are_told(agent):
    """On a machine without a GPU there is the reason, and a table of times, tokens and cache hits all the same."""
    text = agent()

    assert text.startswith("No energy of devices: no device sent hw.power")
    rows = [line.split() for line in text.splitlines() if line[:1].isdigit()]
    assert [row[1] for row in rows] == KINDS
    assert "200" in rows[0]
    assert "CPUs" in text
