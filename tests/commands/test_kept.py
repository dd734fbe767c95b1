import psutil
import pytest
from tests.support.otlp import run_resource, step_span, traces
from tests.support.processes import TINY, query, start_stepmeter

from stepmeter.commands.kept import take_in
from stepmeter.store.segments import claim_run, complete_run
from stepmeter.telemetry.kept import KeptRequests


@pytest.fixture
def run(tmp_path):
    """A run without steps, as a collector leaves it that ended early."""
    directory = claim_run(tmp_path, "run-1", "job")
    complete_run(directory)
    return directory


def test_what_ranks_kept_is_taken_in(run):
    """Steps that two ranks kept are in the store, and their files are gone."""
    for rank in (0, 1):
        kept = KeptRequests(run / "otlp" / f"kept.rank{rank}.7.binpb")
        kept.keep(traces(step_span(rank + 1), resource=run_resource("run-1")).SerializeToString(), 1)
    assert take_in(run)
    assert query(run, "SELECT step FROM steps ORDER BY step") == [(1,), (2,)]
    assert list((run / "otlp").iterdir()) == []


def test_what_cannot_be_taken_in_stays(run, capsys):
    """A file that is no telemetry stays where it is, and one line says so."""
    file = run / "otlp" / "kept.rank0.7.binpb"
    file.parent.mkdir()
    file.write_bytes(b"\x00\x00\x00\x02\xff\xff")
    assert not take_in(run)
    assert file.exists()
    assert capsys.readouterr().err.count("\n") == 1


def test_a_run_that_kept_nothing_is_complete(run):
    """Without such files there is nothing to do."""
    assert take_in(run)


@pytest.mark.slow
def test_a_collector_that_is_killed_costs_no_step(tmp_path):
    """When the collector is killed amid a training, the store and the verdict have every step all the same."""
    started = start_stepmeter("run", TINY, "--steps", 100, "--sleep", 0.05, cwd=tmp_path)
    for line in started.stdout:
        if line.startswith("step 30 "):
            children = psutil.Process(started.pid).children()
            (collector,) = [child for child in children if "collect" in child.cmdline()]
            collector.kill()
            break
    _, errors = started.communicate(timeout=100)
    assert started.returncode == 0
    assert "steps 2 to 100 (99 steps" in errors
    run = tmp_path / "stepmeter-runs" / "tiny"
    assert query(run, "SELECT count(*), max(step) FROM steps") == [(100, 100)]
    assert list(run.glob("otlp/*")) == []
