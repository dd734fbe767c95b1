import json
import subprocess
import sys

import pytest

from stepmeter.commands.attempts import take_part


def attempt_of(run):
    with take_part(run) as attempt:
        return attempt


def test_each_start_of_a_run_is_an_attempt(tmp_path):
    """One start after the other counts 0, 1, 2."""
    assert [attempt_of(tmp_path) for _ in range(3)] == [0, 1, 2]


def test_those_that_run_together_are_in_one_attempt(tmp_path):
    """Two launchers at a time, as of two nodes, are in one attempt; the next after both have ended is a new one."""
    with take_part(tmp_path) as one:
        with take_part(tmp_path) as other:
            assert (one, other) == (0, 0)
        assert attempt_of(tmp_path) == 0
    assert attempt_of(tmp_path) == 1


def test_a_launcher_that_was_killed_leaves_its_attempt(tmp_path):
    """The lock of a launcher that was killed goes with it."""
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom stepmeter.commands.attempts import take_part\n"
        "with take_part(Path(sys.argv[1])) as attempt:\n    print(attempt, flush=True); os.kill(os.getpid(), 9)\n"
    )
    for expected in (b"0\n", b"1\n"):
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (-9, expected)


def test_attempts_that_a_launcher_counted_itself_are_passed_over(tmp_path):
    """Where torchrun restarted up to attempt 3, by rows or steps that are there, the next start is attempt 4."""
    assert attempt_of(tmp_path) == 0
    cursor = tmp_path / "cursors" / "default.rank0.json"
    cursor.parent.mkdir()
    cursor.write_text(json.dumps({"run_id": "job", "attempt": 3, "next_step": 9}), encoding="utf-8")
    assert attempt_of(tmp_path) == 4


@pytest.mark.parametrize("content", ["", "[]", "{", '{"attempt": null}', "null"])
def test_a_counter_that_says_nothing_counts_from_the_start(tmp_path, content):
    """A counter file of nonsense is written anew."""
    (tmp_path / "attempt.json").write_text(content, encoding="utf-8")
    assert attempt_of(tmp_path) == 0
    assert json.loads((tmp_path / "attempt.json").read_text(encoding="utf-8")) == {"attempt": 0}


def test_without_a_directory_nothing_is_counted(tmp_path):
    """Where the directory can't keep a counter there is no attempt, and no error."""
    assert attempt_of(tmp_path / "nowhere") is None
