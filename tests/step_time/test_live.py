from __future__ import annotations

import shutil
import threading

import pytest
from tests.support.step_time import RunBuilder, write_steps

from stepmeter.analysis.step_time import repository, tail
from stepmeter.analysis.step_time.live import LiveStepTimeSession
from stepmeter.store import segments
from stepmeter.store.seal import seal


class Clock:
    """A clock that a test moves."""

    now_s = 1000.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def run(tmp_path):
    """A run of 50 steps."""
    return RunBuilder().rank(0, range(1, 51)).write(tmp_path)


def break_run(run):
    """Make it unreadable, and give back what mends it."""
    hidden = run.with_name("hidden")
    run.rename(hidden)
    return lambda: hidden.rename(run)


def empty_run(run):
    """Take the steps away."""
    shutil.rmtree(run / "data" / "steps")
    (run / "data" / "steps").mkdir()


def add_steps(run, numbers, number):
    steps = [step for step in RunBuilder().rank(0, range(1, numbers.stop)).steps if step.step in numbers]
    rows = [RunBuilder(world_size=1)._table_row(step, "0123456789abcdef") for step in steps]
    write_steps(run, rows, number)


def test_it_is_cold_before_the_first_window(tmp_path):
    """A run without steps gives the empty analysis, and always the same one."""
    with LiveStepTimeSession(RunBuilder().write(tmp_path)) as session:
        first, second = session.refresh(), session.refresh()

    assert (first.freshness, first.analysis.diagnosis.primary.kind, first.newest_ns) == ("cold", "NO_DATA", None)
    assert second.analysis is first.analysis


def test_it_is_cold_while_a_run_can_not_be_read(tmp_path):
    """There is nothing to bridge with, and the reason is told."""
    result = LiveStepTimeSession(tmp_path / "nowhere").refresh()

    assert result.freshness == "cold"
    assert "is not a run" in result.error


def test_it_is_live_and_stays_so_while_nothing_changes(run, clock):
    """An hour without news is still a usable reading, of the very same object."""
    with LiveStepTimeSession(run, monotonic_s=clock) as session:
        first = session.refresh()
        clock.now_s += 3600
        second = session.refresh()

    assert (first.freshness, second.freshness) == ("live", "live")
    assert second.analysis is first.analysis
    assert first.analysis.window.steps[-1] == 50


def test_nothing_is_decoded_again_while_nothing_changes(run, monkeypatch):
    """Ten refreshes decode once; a new step makes it twice."""
    decoded = []
    for module in (tail, repository):
        real = module.from_store
        monkeypatch.setattr(module, "from_store", lambda found, real=real: decoded.append(1) or real(found))

    with LiveStepTimeSession(run) as session:
        results = [session.refresh() for _ in range(10)]
        assert len(decoded) == 1
        add_steps(run, range(51, 52), 2)
        later = session.refresh()

    assert len({id(result.analysis) for result in results}) == 1
    assert len(decoded) == 2
    assert later.analysis.window.steps[-1] == 51


def test_a_run_that_is_sealed_meanwhile_stays_as_it_is(run, monkeypatch):
    """The steps are the same, so is the analysis; the sealed run is read once and then left alone."""
    segments.complete_run(run)
    decoded = []
    real = tail.from_store
    monkeypatch.setattr(tail, "from_store", lambda found: decoded.append(1) or real(found))

    with LiveStepTimeSession(run) as session:
        before = session.refresh()
        seal(run)
        after = [session.refresh() for _ in range(5)]

    assert {result.freshness for result in after} == {"live"}
    assert all(result.analysis is before.analysis for result in after)
    assert len(decoded) == 2


def test_a_failed_reading_is_bridged_with_the_last_good_one(run, clock):
    """Within 30 s the last good analysis is shown, and the reason is told."""
    session = LiveStepTimeSession(run, monotonic_s=clock)
    good = session.refresh()
    session.close()
    mend = break_run(run)

    clock.now_s += 30
    bridged = session.refresh()

    assert (bridged.freshness, bridged.analysis) == ("bridged", good.analysis)
    assert "is not a run" in bridged.error
    mend()
    assert session.refresh().freshness == "live"
    session.close()


def test_an_empty_reading_is_bridged_too(run):
    """A store that lost its steps is no news about the training."""
    with LiveStepTimeSession(run) as session:
        good = session.refresh()
        empty_run(run)

        results = [session.refresh() for _ in range(2)]

    assert [result.freshness for result in results] == ["bridged", "bridged"]
    assert all(result.analysis is good.analysis for result in results)


def test_a_bridge_ends_after_its_time(run, clock):
    """After 30 s of failed readings nothing is claimed any more."""
    session = LiveStepTimeSession(run, monotonic_s=clock)
    session.refresh()
    session.close()
    break_run(run)

    clock.now_s += 30.1
    result = session.refresh()

    assert (result.freshness, result.analysis.window.steps) == ("expired", ())


def test_a_bridge_without_a_time_holds_for_ever(run, clock):
    """None means that the last good analysis never expires."""
    session = LiveStepTimeSession(run, monotonic_s=clock, ttl_s=None)
    session.refresh()
    session.close()
    break_run(run)

    clock.now_s += 10**6

    assert session.refresh().freshness == "bridged"


def test_refreshes_of_several_threads_follow_one_another(run):
    """Four threads with ten refreshes each get one and the same analysis."""
    found = []
    with LiveStepTimeSession(run) as session:
        threads = [
            threading.Thread(target=lambda: found.extend(session.refresh() for _ in range(10))) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(found) == 40
    assert len({id(result.analysis) for result in found}) == 1


def test_the_newest_step_has_a_time(run):
    """Steps of 100 ms from a known epoch: the fiftieth ended five seconds after it."""
    with LiveStepTimeSession(run) as session:
        assert session.refresh().newest_ns == 1_700_000_005_000_000_000
