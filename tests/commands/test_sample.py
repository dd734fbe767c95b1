import itertools
import json
import subprocess
import sys
import time

import pytest
from tests.support.metrics_page import serving
from tests.support.processes import clean_environ, query, stepmeter
from tests.support.simulated_nvml import UUID, library_directory

from stepmeter.cli import main


def page():
    """A server that has generated 10 tokens more at each look."""
    looks = itertools.count(1)
    return lambda: "".join(
        f'vllm:{name}_total{{model_name="m"}} {10 * number}\n'
        for number in [next(looks)]
        for name in ("prompt_tokens", "generation_tokens")
    )


def test_devices_and_a_server_are_sampled_into_a_run(tmp_path):
    """Beside a program of anyone's: ticks, power and tokens are in a store, and a step file prices its steps."""
    begun_ns = time.time_ns()
    with serving(page()) as server:
        words = ["sample", "--name", "task", "--duration", "6", "--interval", "0.5"]
        environ = {"LD_LIBRARY_PATH": library_directory(), "SIMNVML_GPUS": "H100:0x1a", "SIMNVML_POWER": "300:1"}
        done = stepmeter(*words, "--scrape", server.url, "--engine", "vllm", cwd=tmp_path, **environ)
    assert done.returncode == 0, done.stderr
    assert "sampling 1 GPUs and 1 servers into stepmeter-runs/task" in done.stderr
    assert ", 0 not taken, 0 dropped" in done.stderr
    run = tmp_path / "stepmeter-runs" / "task"

    found = query(run, "SELECT min(time_ns), count(*) FROM metrics WHERE metric = 'hw.energy'")
    first_ns, ticks = found[0]
    assert begun_ns < first_ns
    assert ticks > 20
    assert query(run, "SELECT DISTINCT hw_id FROM metrics WHERE metric = 'hw.energy'") == [(UUID,)]

    step = {
        "step_id": 1,
        "kind": "llm_call",
        "t_start_unix_ns": first_ns + 10**9,
        "t_end_unix_ns": first_ns + 3 * 10**9,
    }
    (tmp_path / "steps.jsonl").write_text(json.dumps(step))
    shown = stepmeter("energy", "task", "--steps", "steps.jsonl", "--json", cwd=tmp_path)
    trajectory = json.loads(shown.stdout)["trajectory"]
    priced = trajectory["steps"][0]

    assert priced["estimate"]["value_mj"] == pytest.approx(600_000, rel=0.01)
    assert priced["estimate"]["lower_mj"] <= 600_000 <= priced["estimate"]["upper_mj"]
    assert 450_000 <= priced["energy_mj"] <= 600_000
    assert priced["generation_tokens_delta"] in {30, 40, 50}
    assert trajectory["anchor_source"] == "run"
    assert trajectory["devices"][0]["integral_to_counter"] == pytest.approx(1, abs=0.01)


RAPL = """
import sys, threading, time
from pathlib import Path
from stepmeter.samplers import rapl

zone = Path("powercap/intel-rapl:0")
zone.mkdir(parents=True)
(zone / "name").write_text("package-0")
(zone / "max_energy_range_uj").write_text("262143328850")
(zone / "energy_uj").write_text("0")
rapl.POWERCAP = zone.parent

def draw():
    begun_s = time.monotonic()
    while True:  # 50 W
        (zone / "new").write_text(str(int((time.monotonic() - begun_s) * 50e6)))
        (zone / "new").rename(zone / "energy_uj")
        time.sleep(0.002)

threading.Thread(target=draw, daemon=True).start()
from stepmeter.cli import main
sys.exit(main(["sample", "--name", "cpus", "--duration", "4"]))
"""


def test_cpus_are_sampled_and_priced(tmp_path):
    """On a host without a GPU whose RAPL can be read a step of a file has the CPUs' energy, within its bounds."""
    words = [sys.executable, "-c", RAPL]
    done = subprocess.run(
        words, cwd=tmp_path, env=clean_environ(), capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    run = tmp_path / "stepmeter-runs" / "cpus"
    ((first_ns, kinds),) = query(run, "SELECT min(t_hi_ns), list(DISTINCT hw_type) FROM raw.gpu_samples")
    assert kinds == ["cpu"]
    times = {"t_start_unix_ns": first_ns + 10**9, "t_end_unix_ns": first_ns + 2 * 10**9}
    (tmp_path / "steps.jsonl").write_text(json.dumps({"step_id": 1, "kind": "tool", **times}))
    found = json.loads(stepmeter("energy", "cpus", "--steps", "steps.jsonl", "--json", cwd=tmp_path).stdout)
    (step,) = found["steps"]

    assert found["withheld"] == "no_device_timeline"
    assert step["host"]["lower_mj"] <= 50_000 <= step["host"]["upper_mj"]
    assert step["host"]["value_mj"] == pytest.approx(50_000, rel=0.05)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scrape", "http://127.0.0.1:1/metrics"], "--scrape and --engine go together"),
        (["--engine", "vllm"], "--scrape and --engine go together"),
        (["--scrape", "ftp://x", "--engine", "vllm"], "expected an http:// or https:// address"),
        (["--interval", "0"], "expected 0.05 s or more"),
        (["--interval", "nan"], "expected 0.05 s or more"),
        (["--duration", "-1"], "expected seconds above 0"),
    ],
)
def test_arguments_must_fit_together(words, message, capsys):
    """What does not fit together is one line and exit code 2."""
    assert main(["sample", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told_once(tmp_path):
    """Nobody waits an hour for tokens of a page that does not answer: its first failure is a line, its next is none."""
    words = ["sample", "--duration", "1", "--interval", "0.2", "--engine", "vllm"]

    done = stepmeter(*words, "--scrape", "http://127.0.0.1:1/metrics", cwd=tmp_path)

    said = "stepmeter: http://127.0.0.1:1/metrics: nothing listens there; it is asked again and again\n"
    assert done.stderr.count(said) == 1
    assert done.returncode == 0
