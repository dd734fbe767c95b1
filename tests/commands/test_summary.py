from __future__ import annotations

import argparse
import json

import pytest
from tests.support.step_time import RunBuilder

from stepmeter.commands import summary
from stepmeter.errors import RunNotFoundError
from stepmeter.store import segments


def run_command(*words):
    parser = argparse.ArgumentParser()
    summary.configure(parser)
    return summary.execute(parser.parse_args(words))


def test_it_prints_the_verdict(tmp_path, capsys):
    """A run is named by its directory; the text goes to stdout, plain since that is no terminal."""
    run = RunBuilder().rank(0, range(1, 25), input_wait=60.0).write(tmp_path)

    assert run_command(str(run)) == 0
    out, err = capsys.readouterr()
    assert out.startswith("INPUT-BOUND  critical")
    assert out.isascii()
    assert err == ""


def test_it_prints_json_for_programs(tmp_path, capsys):
    """Standard output is one JSON document and nothing else."""
    run = RunBuilder().rank(0, range(1, 25), input_wait=60.0).write(tmp_path)
    segments.complete_run(run)

    assert run_command(str(run / "run.duckdb"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["primary_diagnosis"]["kind"] == "INPUT_BOUND"


def test_it_finds_a_run_by_name(tmp_path, capsys, monkeypatch):
    """The directory of runs comes from the environment."""
    RunBuilder().rank(0, range(1, 25)).write(tmp_path, name="mine")
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))

    assert run_command("mine") == 0
    assert "run mine: steps 1 to 24" in capsys.readouterr().out


def test_a_run_without_steps_is_no_error(tmp_path, capsys):
    """It exits with 0 and says what to check."""
    assert run_command(str(RunBuilder().write(tmp_path))) == 0
    assert "stepmeter doctor" in capsys.readouterr().out


def test_a_missing_run_is_one(tmp_path, monkeypatch):
    """The error is that of the store, with exit code 3."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))

    with pytest.raises(RunNotFoundError):
        run_command("nowhere")
