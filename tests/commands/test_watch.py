from __future__ import annotations

import argparse

import pytest
from tests.support.step_time import RunBuilder

from stepmeter.commands import watch
from stepmeter.errors import RunNotFoundError, UsageError


def run_command(*words):
    parser = argparse.ArgumentParser()
    watch.configure(parser)
    return watch.execute(parser.parse_args(words))


def test_without_a_terminal_it_draws_once(tmp_path, capsys):
    """A pipe gets one picture and the command ends."""
    run = RunBuilder().rank(0, range(1, 25), input_wait=60.0).write(tmp_path)

    assert run_command(str(run)) == 0
    out = capsys.readouterr().out
    assert out.startswith("INPUT-BOUND  critical")
    assert "\nstep time  =" in out
    assert out.isascii()


def test_a_missing_run_is_an_error(tmp_path, monkeypatch):
    """It is that of the store, with exit code 3."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))

    with pytest.raises(RunNotFoundError):
        run_command("nowhere")


@pytest.mark.parametrize("interval", ["0", "-1", "nan"])
def test_an_interval_is_above_zero(tmp_path, interval):
    """The message says what was found and what would do."""
    run = RunBuilder().rank(0, range(1, 25)).write(tmp_path)

    with pytest.raises(UsageError, match="expected seconds above 0"):
        run_command(str(run), "--interval", interval)
