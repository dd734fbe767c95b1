"""Tests of `stepmeter runs` and `stepmeter prune`."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from tests.support.rows import step_row

from stepmeter.cli import main
from stepmeter.store.schema import STEPS
from stepmeter.store.seal import seal
from stepmeter.store.segments import create_run, write_segment
from stepmeter.store.watermark import Watermark

DAY_S = 86_400


@pytest.fixture
def runs(tmp_path):
    """Three runs that changed 30, 20 and 10 days ago."""
    made = []
    for name, age in (("old", 30), ("middle", 20), ("new", 10)):
        run = create_run(tmp_path, f"id-{name}", name)
        write_segment(run, STEPS, [step_row(1), step_row(2)], "h", 1)
        Watermark(run, "h").advance(1, [step_row(1), step_row(2)])
        age_run(run, age)
        made.append(run)
    return made


def age_run(run, days):
    import time

    when = time.time() - days * DAY_S
    for path in (*run.rglob("*"), run):
        os.utime(path, (when, when))


def left(directory):
    return sorted(path.name for path in directory.iterdir() if not path.name.startswith("."))


def test_runs_are_listed_for_people_and_programs(runs, tmp_path, capsys):
    """The list has each run with its state, steps and size, the latest change last."""
    seal(runs[0])
    age_run(runs[0], 40)
    with (runs[2] / ".writers").open("a") as writer:
        fcntl.flock(writer, fcntl.LOCK_SH)
        assert main(["runs", str(tmp_path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert main(["runs", str(tmp_path)]) == 0
        table = capsys.readouterr().out
    assert [(run["name"], run["state"], run["steps"]) for run in found] == [
        ("old", "sealed", 2),
        ("middle", "finished", 2),
        ("new", "written", 2),
    ]
    assert all(run["size_bytes"] > 0 for run in found)
    assert [word in table for word in ("middle", "finished", "id-new")] == [True] * 3


def test_an_empty_directory_says_how_to_start(tmp_path, capsys):
    """No runs is no error; no directory is one, with code 3."""
    assert main(["runs", str(tmp_path)]) == 0
    assert "stepmeter run" in capsys.readouterr().err
    assert main(["runs", str(tmp_path / "none")]) == 3


@pytest.mark.parametrize(
    ("arguments", "stay"),
    [
        (["--keep", "1"], ["new"]),
        (["--keep", "5"], ["middle", "new", "old"]),
        (["--older-than", "25d"], ["middle", "new"]),
        (["--max-bytes", "0"], []),
        (["--max-bytes", "1GB"], ["middle", "new", "old"]),
        (["--keep", "2", "--older-than", "15d"], ["new"]),
    ],
)
def test_the_oldest_runs_go_first(runs, tmp_path, capsys, arguments, stay):
    """Runs go by number, age or size, those that changed longest ago first, whole."""
    assert main(["prune", str(tmp_path), "--dry-run", *arguments]) == 0
    assert len(left(tmp_path)) == 3
    announced = capsys.readouterr().out.splitlines()
    assert main(["prune", str(tmp_path), *arguments]) == 0
    assert capsys.readouterr().out.splitlines() == announced
    assert left(tmp_path) == stay
    assert {Path(line).name for line in announced} == {"old", "middle", "new"} - set(stay)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".gone")] == []


def test_a_run_that_is_written_stays(runs, tmp_path):
    """Whatever the rule, a run that a collector may still write to is kept."""
    with (runs[0] / ".writers").open("a") as writer:
        fcntl.flock(writer, fcntl.LOCK_SH)
        assert main(["prune", str(tmp_path), "--keep", "0"]) == 0
    assert left(tmp_path) == ["old"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --keep, --older-than or --max-bytes"),
        (["--keep", "some"], 'found "some", expected a number'),
        (["--older-than", "soon"], 'found "soon", expected an age'),
        (["--max-bytes", "5XB"], 'found "5XB", expected a size'),
    ],
)
def test_a_wrong_rule_removes_nothing(runs, tmp_path, capsys, arguments, message):
    """Without a rule, or with one that can't be read, nothing goes and the code is 2."""
    assert main(["prune", str(tmp_path), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert len(left(tmp_path)) == 3
