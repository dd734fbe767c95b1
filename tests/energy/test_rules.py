"""Each rule on energy on both sides of its threshold."""

import pytest
from tests.support.energy_run import EnergyRun

from stepmeter.analysis.energy.analysis import analyze_energy
from stepmeter.analysis.energy.model import Bases, DeviceEnergy, RankEnergy, TrainingEnergy
from stepmeter.analysis.energy.rules import RULES, normal
from stepmeter.analysis.section import judge
from stepmeter.store.reader import open_run

S = 1_000_000_000


def device(number=0, total=100_000, idle=5_000, **more):
    figures = {"bases": Bases(total, total), "total_mj": total, "steps_mj": total - idle, "idle_mj": idle}
    return DeviceEnergy(
        f"gpu-{number}", **{**figures, "duration_ns": 100 * S, "idle_ns": S, "update_period_ns": S, **more}
    )


def rank(number=0, median=100_000.0, half=1_000.0, **more):
    return RankEnergy(
        number,
        f"gpu-{number}",
        10,
        0,
        1_000_000,
        990_000,
        1_010_000,
        median,
        half,
        None,
        None,
        **{"median_ns": S, **more},
    )


def kinds(devices=None, ranks=None):
    facts = TrainingEnergy(tuple(devices or [device()]), tuple(ranks or [rank()]))
    found = judge(facts, RULES, normal.issue)
    return [(issue.kind, issue.severity) for issue in found.issues]


@pytest.mark.parametrize(
    ("idle", "found"),
    [
        (9_999, ("NORMAL", "info")),
        (10_000, ("IDLE_ENERGY", "warn")),
        (29_999, ("IDLE_ENERGY", "warn")),
        (30_000, ("IDLE_ENERGY", "crit")),
    ],
)
def test_idle_energy_is_judged_by_its_share(idle, found):
    """Energy in nobody's step warns from 10 % and is critical from 30 %."""
    assert kinds([device(idle=idle)]) == [found]


@pytest.mark.parametrize(
    ("worst", "found"),
    [
        ({"median": 114_000.0}, "NORMAL"),
        ({"median": 115_000.0}, "ENERGY_STRAGGLER"),
        ({"median": 130_000.0, "median_ns": 2 * S}, "NORMAL"),
        ({"median": 130_000.0, "half": 31_000.0}, "NORMAL"),
    ],
    ids=["below", "at", "slower as well", "within its bounds"],
)
def test_a_rank_that_takes_more_for_the_same_time(worst, found):
    """A rank 15 % above the median is found when its steps take as long, and by more than the bounds leave open."""
    found_kinds = kinds([device(n) for n in range(4)], [*(rank(n) for n in range(3)), rank(3, **worst)])

    assert found_kinds == [(found, "info" if found == "NORMAL" else "warn")]


def test_two_ranks_have_no_straggler():
    """Of two ranks nobody can say which one is odd."""
    assert kinds([device(0), device(1)], [rank(0), rank(1, median=200_000.0)]) == [("NORMAL", "info")]


@pytest.mark.parametrize(
    ("integral", "found"), [(109_999, "NORMAL"), (110_001, "BASIS_DISAGREEMENT"), (89_000, "BASIS_DISAGREEMENT")]
)
def test_bases_that_disagree(integral, found):
    """Integrated power more than 10 % off the counter, either way, is a finding."""
    assert kinds([device(bases=Bases(100_000, integral))])[0][0] == found


@pytest.mark.parametrize(("share", "found"), [(None, "NORMAL"), (0.099, "NORMAL"), (0.1, "POWER_THROTTLED")])
def test_clocks_that_were_held_down(share, found):
    """Clocks held down in a tenth of the readings are a finding; readings that nobody took are none."""
    assert kinds([device(throttled_share=share)])[0][0] == found


@pytest.mark.parametrize(("half", "found"), [(25_000.0, "NORMAL"), (25_001.0, "ENERGY_UNRESOLVED")])
def test_bounds_that_are_wide(half, found):
    """Bounds wider than a quarter to either side are said, as information."""
    assert kinds(ranks=[rank(half=half)]) == [(found, "info")]


def test_without_energy_there_is_no_data():
    """Without readings the section says so and judges nothing."""
    found = judge(TrainingEnergy(reason="no step ran on a GPU"), RULES, normal.issue)

    assert found.primary.kind == "NO_DATA"
    assert "no step ran on a GPU" in found.primary.summary


def test_a_run_is_judged_through_its_store(tmp_path):
    """A run that idles for a third of its energy and is throttled all along is found to be so from its store."""
    run = EnergyRun()
    run.counter(lambda now: 300 * now, range(21), 0.0)
    for second in range(20):
        run.point("stepmeter.energy.throttled", second, 1)
    for number in range(10):
        run.step(number + 1, 2 * number, 2 * number + 1)
    with open_run(run.write(tmp_path)) as reader:
        found = analyze_energy(reader.snapshot(), 0)

    assert [issue.kind for issue in found.diagnosis.issues] == ["IDLE_ENERGY", "POWER_THROTTLED"]
    assert found.facts.ranks[0].methods == {"counter_exact": 10}


def test_a_summary_looks_at_the_latest_steps(tmp_path):
    """With a limit only the latest steps are judged, and the readings from a second before them to one after."""
    run = EnergyRun()
    run.counter(lambda now: 300 * now, range(101), 0.0)
    for number in range(99):
        run.step(number + 1, number, number + 1)
    with open_run(run.write(tmp_path)) as reader:
        limited = analyze_energy(reader.snapshot(), 0, 10).facts
        whole = analyze_energy(reader.snapshot(), 0).facts

    assert (limited.ranks[0].steps, whole.ranks[0].steps) == (10, 99)
    assert limited.devices[0].total_mj == 12 * 300_000
    assert whole.devices[0].total_mj == 100 * 300_000
