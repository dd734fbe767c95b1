"""Tests of `stepmeter seal`."""

from __future__ import annotations

from tests.support.otlp import collector_process, post, step_span, traces

from stepmeter.cli import main
from stepmeter.collector.decode import RunKey
from stepmeter.collector.journal import JournalFile, Record
from stepmeter.collector.otlp import TRACES, Encoding
from stepmeter.collector.slot import take_slot
from stepmeter.store.reader import open_run


def steps(run):
    with open_run(run) as reader:
        return reader.snapshot().rows("SELECT step FROM steps ORDER BY step")


def test_a_run_that_is_written_waits_and_a_sealed_one_takes_nothing(tmp_path, capsys, monkeypatch):
    """A run is not sealed under its collector; afterwards it is, and late telemetry is refused with a clear status."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))
    with collector_process(tmp_path, "--run", "run-1", "--run-name", "demo") as running:
        assert post(running.http, traces(step_span(1)).SerializeToString()).status == 200
        assert main(["seal", "demo"]) == 4
        assert "a collector writes to it" in capsys.readouterr().err
        assert running.stop()[0] == 0
    assert main(["seal", "demo"]) == 0
    assert "is sealed" in capsys.readouterr().err
    assert main(["seal", "run-1"]) == 0
    assert "was sealed already" in capsys.readouterr().err
    with collector_process(tmp_path) as running:
        answer = post(running.http, traces(step_span(2)).SerializeToString())
        assert (answer.status, b"is sealed and takes no more telemetry" in answer.body) == (409, True)
    assert steps(tmp_path / "demo") == [(1,)]


def test_what_a_dead_collector_left_is_in_the_sealed_run(tmp_path, capsys):
    """Acknowledged requests that a crash left in a journal are written before their run is sealed."""
    slot = take_slot(tmp_path)
    left = JournalFile(slot.journal_dir, 1, RunKey("run-1", "demo"))
    left.append([Record(TRACES, Encoding.PROTOBUF, traces(step_span(7)).SerializeToString())])
    left.close()
    slot.release()
    with collector_process(tmp_path, "--run", "run-1", "--run-name", "demo") as running:
        running.stop()
    left = JournalFile((slot := take_slot(tmp_path)).journal_dir, 50, RunKey("run-1", "demo"))
    left.append([Record(TRACES, Encoding.PROTOBUF, traces(step_span(8)).SerializeToString())])
    left.close()
    slot.release()
    assert main(["seal", str(tmp_path / "demo")]) == 0
    assert "wrote 1 requests that a collector had left" in capsys.readouterr().err
    assert steps(tmp_path / "demo") == [(7,), (8,)]


def test_a_run_that_is_not_there_is_one_line(tmp_path, capsys, monkeypatch):
    """Sealing nothing is an error with code 3."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))
    assert main(["seal", "nothing"]) == 3
    assert capsys.readouterr().err.count("\n") == 1
