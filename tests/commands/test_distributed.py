"""Real ranks under `stepmeter run`: who is slow and why, restarts, nodes."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.processes import BIN, PROGRAMS, free_port, query, stepmeter

TORCHRUN = str(BIN / "torchrun")
RANKS = str(PROGRAMS / "ranks.py")
pytestmark = pytest.mark.slow


def train(directory, *words, ranks=2, launch=("--standalone",), **environ):
    """Run the ranks under stepmeter and return the run's directory and its summary."""
    command = [TORCHRUN, *launch, f"--nproc-per-node={ranks}", RANKS, *words]
    done = stepmeter("run", "--quiet", "--name", "job", "--", *command, cwd=directory, timeout=280, **environ)
    assert done.returncode == 0, done.stderr
    run = directory / "stepmeter-runs" / "job"
    return run, json.loads((run / "final_summary.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("slow", "kind", "phase"),
    [
        ("input", "INPUT_STRAGGLER", "input wait"),
        ("forward", "COMPUTE_STRAGGLER", "forward"),
        ("backward", "COMPUTE_STRAGGLER", "backward"),
    ],
)
def test_a_slow_rank_of_ddp_is_named_with_its_cause(tmp_path, slow, kind, phase):
    """Rank 1, 40 ms slower in its input, forward or backward, is the straggler for that reason."""
    _, summary = train(tmp_path, "--slow", slow)

    verdict = summary["primary_diagnosis"]
    assert (verdict["kind"], verdict["severity"]) == (kind, "crit")
    assert verdict["evidence"]["culprit_rank"] == 1
    assert phase in verdict["summary"]


def test_four_ranks_of_fsdp_are_one_run(tmp_path):
    """Four ranks that shard their model are one run of strategy fsdp, and the one with slow input is named."""
    run, summary = train(tmp_path, "--slow", "input", "--fsdp", ranks=4)

    assert query(run, "SELECT strategy, world_size, count(*), count(DISTINCT rank) FROM steps GROUP BY ALL") == [
        ("fsdp", 4, 160, 4)
    ]
    verdict = summary["primary_diagnosis"]
    assert (verdict["kind"], verdict["severity"], verdict["evidence"]["culprit_rank"]) == ("INPUT_STRAGGLER", "warn", 1)


def test_restarts_are_attempts_of_one_run(tmp_path):
    """A rank that dies once makes torchrun begin attempt 1; starting the run again is attempt 2, which is judged."""
    environ = {"STEPMETER_RUN_ID": "job-7"}
    train(tmp_path, "--steps", "12", "--dies-at", "8", launch=("--standalone", "--max-restarts=1"), **environ)
    run, summary = train(tmp_path, "--steps", "10", **environ)

    found = query(run, "SELECT attempt, rank, max(step), count(DISTINCT run_id) FROM steps GROUP BY ALL ORDER BY ALL")
    assert [row for row in found if row[0] > 0] == [(1, 0, 12, 1), (1, 1, 12, 1), (2, 0, 10, 1), (2, 1, 10, 1)]
    assert [row[1:3] for row in found if row[0] == 0] in ([(0, 8), (1, 7)], [(0, 8), (1, 8)])
    assert summary["step_time"]["metadata"]["training_total_steps"] == 20


def test_two_nodes_with_one_run_id_are_one_run(tmp_path):
    """Two agents, each under a `stepmeter run` of its own with the same run id, are one attempt of one run."""
    meeting = ("--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=job", f"--rdzv-endpoint=127.0.0.1:{free_port()}")
    with ThreadPoolExecutor(2) as pool:
        nodes = [pool.submit(train, tmp_path, launch=meeting, STEPMETER_RUN_ID="job-8") for _ in range(2)]
        (run, _), _ = [node.result() for node in nodes]

    assert query(
        run, "SELECT run_id, attempt, world_size, count(DISTINCT node_rank), count(*) FROM steps GROUP BY ALL"
    ) == [("job-8", 0, 4, 2, 160)]
    shared = "SELECT count(DISTINCT trace_id), count(*) FROM steps"
    assert query(run, shared) == [(40, 160)]
