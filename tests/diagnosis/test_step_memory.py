"""Each rule on the memory of steps on both sides of its threshold, and with too few steps."""

from __future__ import annotations

import pytest
from tests.support.step_time import RunBuilder

GIB = 1024**3
MIB = 1024**2


def memory_of(builder, one_run):
    return one_run.analyze(builder).step_memory


def found_in(builder, one_run):
    return {issue.kind: issue.severity for issue in memory_of(builder, one_run).diagnosis.issues}


def a_run(*peaks_of_ranks, n_steps=50, limit_bytes=100 * GIB):
    """Ranks whose steps peak at so many bytes, a number or a function of the step."""
    builder = RunBuilder(gpu=True, memory_limit_bytes=limit_bytes)
    for rank, peak in enumerate(peaks_of_ranks):
        builder.rank(rank, range(1, n_steps + 1))
        peak_of = peak if callable(peak) else (lambda _, peak=peak: peak)
        builder.peaks(
            rank, lambda step, peak_of=peak_of: int(peak_of(step)), lambda step, peak_of=peak_of: int(peak_of(step))
        )
    return builder


@pytest.mark.parametrize(
    ("peak_gib", "found"),
    [(91, {"BALANCED": "info"}), (92, {"HIGH_PRESSURE": "warn"}), (97, {"HIGH_PRESSURE": "crit"})],
)
def test_pressure_begins_at_92_percent(one_run, peak_gib, found):
    """Of 100 GiB 92 are a warning and 97 are critical."""
    assert found_in(a_run(peak_gib * GIB), one_run) == found


def test_pressure_needs_fifty_steps(one_run):
    """49 steps say nothing."""
    assert found_in(a_run(99 * GIB, n_steps=49), one_run) == {"BALANCED": "info"}


def test_pressure_is_not_judged_against_an_unknown_device(one_run):
    """The finding says that the device's memory is not known."""
    analysis = memory_of(a_run(99 * GIB, limit_bytes=None), one_run)

    assert analysis.diagnosis.primary.kind == "BALANCED"
    assert "whose memory is not known" in analysis.diagnosis.primary.summary


@pytest.mark.parametrize(
    ("worst_gib", "others_gib", "severity"),
    [(36, 30, "warn"), (35, 30, None), (29, 20, None), (52, 40, "crit"), (51, 40, "warn")],
)
def test_imbalance_needs_skew_and_pressure(one_run, worst_gib, others_gib, severity):
    """20 % over the median at 30 % of the device are a warning, 30 % at 50 % are critical."""
    builder = a_run(others_gib * GIB, worst_gib * GIB, others_gib * GIB)

    assert found_in(builder, one_run).get("IMBALANCE") == severity


def rising(from_gib, growth_mib, n_steps):
    """A peak that grows by so much from the mean of its first hundred steps to that of its last hundred."""
    return lambda step: from_gib * GIB + growth_mib * MIB * (step - 50.5) / (n_steps - 100)


@pytest.mark.parametrize(
    ("growth_mib", "found"),
    [(510, "BALANCED"), (513, "CREEP_EARLY"), (1023, "CREEP_EARLY"), (1025, "CREEP_CONFIRMED")],
)
def test_creep_begins_at_half_a_gibibyte(one_run, growth_mib, found):
    """512 MiB over 800 steps are rising memory, 1 GiB is a creep."""
    issues = memory_of(a_run(rising(2, growth_mib, 800), n_steps=800), one_run).diagnosis.issues

    assert [issue.kind for issue in issues] == [found]


def test_creep_needs_eight_hundred_steps(one_run):
    """799 steps say nothing."""
    assert found_in(a_run(rising(2, 2048, 799), n_steps=799), one_run) == {"BALANCED": "info"}


def test_creep_needs_a_trend_of_six_percent(one_run):
    """1 GiB on top of 40 are 2.5 %: that may be anything."""
    assert found_in(a_run(rising(40, 1025, 800), n_steps=800), one_run) == {"BALANCED": "info"}


def test_a_step_up_is_no_creep(one_run):
    """A level that jumped once and stays has no slope any more."""
    jumped = a_run(lambda step: (2 if step <= 200 else 4) * GIB, n_steps=800)

    assert found_in(jumped, one_run) == {"BALANCED": "info"}


def test_memory_that_is_given_back_is_no_creep(one_run):
    """It rises for 650 steps and then gives a fifth back."""
    rise = rising(2, 2048, 800)

    assert found_in(a_run(lambda step: rise(step) * (0.8 if step > 650 else 1.0), n_steps=800), one_run) == {
        "BALANCED": "info"
    }


def test_one_rank_of_three_that_creeps_is_no_creep_of_the_run(one_run):
    """The median rank must rise too; a single one shows as imbalance when it matters."""
    builder = a_run(2 * GIB, 2 * GIB, rising(2, 2048, 800), n_steps=800)

    assert not any(kind.startswith("CREEP") for kind in found_in(builder, one_run))


def test_without_a_gpu_the_section_says_so(one_run):
    """NO_GPU, and every metric is absent."""
    analysis = memory_of(RunBuilder().rank(0, range(1, 51)), one_run)

    assert [issue.kind for issue in analysis.diagnosis.issues] == ["NO_GPU"]
    assert analysis.facts.rows == {}


def test_a_gpu_without_peaks_is_no_data(one_run):
    """Steps ran on a device and measured nothing."""
    assert found_in(RunBuilder(gpu=True).rank(0, range(1, 51)), one_run) == {"NO_DATA": "info"}


def test_a_step_without_a_peak_is_left_out(one_run):
    """Absent is not zero: the peak of the others stands."""
    builder = RunBuilder(gpu=True, memory_limit_bytes=100 * GIB).rank(0, range(1, 51))
    builder.peaks(0, lambda step: None if step % 2 else 10 * GIB, lambda _: None)

    facts = memory_of(builder, one_run).facts

    assert facts.rows[0].metrics == {"peak_allocated_bytes": 10 * GIB, "peak_allocated_share": 0.1}
    assert (facts.n_steps, facts.steps) == (25, (2, 50))
