"""Each rule on training processes on both sides of its threshold, through a store."""

from __future__ import annotations

import pytest
from tests.support.step_time import RunBuilder

GIB = 1024**3


def a_run(*, gpu=True, ranks=1):
    """Ranks with 50 steps of 100 ms on devices of 100 GiB."""
    builder = RunBuilder(gpu=gpu, memory_limit_bytes=100 * GIB)
    for rank in range(ranks):
        builder.rank(rank, range(1, 51))
    return builder


def with_peaks(builder, rank, allocated_gib, reserved_gib):
    builder.peaks(rank, lambda _: int(allocated_gib * GIB), lambda _: int(reserved_gib * GIB))
    return builder


def process_of(builder, one_run):
    return one_run.analyze(builder).process


def found_in(builder, one_run):
    return {issue.kind: issue.severity for issue in process_of(builder, one_run).diagnosis.issues}


@pytest.mark.parametrize(
    ("reserved_gib", "found"),
    [
        (79, {"NORMAL": "info"}),
        (80, {"HIGH_PROCESS_GPU_MEMORY": "warn"}),
        (89, {"HIGH_PROCESS_GPU_MEMORY": "warn"}),
        (90, {"VERY_HIGH_PROCESS_GPU_MEMORY": "crit"}),
    ],
)
def test_gpu_memory_is_judged_by_what_the_allocator_held(one_run, reserved_gib, found):
    """Of 100 GiB 80 are a warning and 90 are critical."""
    assert found_in(with_peaks(a_run(), 0, reserved_gib - 1, reserved_gib), one_run) == found


@pytest.mark.parametrize(
    ("allocated_gib", "reserved_gib", "fires"), [(15.0, 30.0, True), (15.1, 30.0, False), (14.0, 29.0, False)]
)
def test_an_overhang_is_twice_the_allocation_and_a_third_of_the_device(one_run, allocated_gib, reserved_gib, fires):
    """30 GiB for 15 are one; 30 for 15.1, and 29 of 100 for whatever, are none."""
    found = found_in(with_peaks(a_run(), 0, allocated_gib, reserved_gib), one_run)

    assert ("GPU_MEMORY_RESERVED_OVERHANG" in found) is fires


@pytest.mark.parametrize(
    ("fullest_gib", "emptiest_gib", "severity"),
    [(30, 24, "warn"), (30, 24.1, None), (29, 10, None), (50, 35, "crit"), (50, 35.1, "warn"), (49, 30, "warn")],
)
def test_imbalance_needs_a_spread_and_pressure(one_run, fullest_gib, emptiest_gib, severity):
    """20 % at 30 % of the device are a warning, 30 % at 50 % are critical."""
    builder = with_peaks(with_peaks(a_run(ranks=2), 0, fullest_gib, fullest_gib), 1, emptiest_gib, emptiest_gib)

    assert found_in(builder, one_run).get("RANK_GPU_MEMORY_IMBALANCE") == severity


@pytest.mark.parametrize(("peak_gib", "fires"), [(79, False), (80, True)])
def test_resident_memory_is_judged_by_its_peak(one_run, peak_gib, fires):
    """80 of the host's 100 GiB are a warning."""
    builder = a_run(gpu=False)
    builder.read("process.memory.usage", GIB, peak_gib * GIB, GIB)
    builder.read("system.memory.limit", 100 * GIB)

    assert ("HIGH_PROCESS_RSS" in found_in(builder, one_run)) is fires


@pytest.mark.parametrize(("cores", "fires"), [(6.3, False), (6.4, True)])
def test_cpu_time_is_judged_against_the_hosts_cpus(one_run, cores, fires):
    """6.4 of 8 CPUs busy are a warning; user and system time are summed."""
    builder = a_run(gpu=False)
    for mode, part in (("user", 0.75), ("system", 0.25)):
        builder.read("process.cpu.time", *(100 + cores * part * second for second in range(4)), cpu_mode=mode)
    builder.read("system.cpu.logical.count", 8)

    process = process_of(builder, one_run)

    assert process.facts.rows[0].metrics["cpu_cores"] == pytest.approx(cores)
    assert ("HIGH_PROCESS_CPU" in {issue.kind for issue in process.diagnosis.issues}) is fires


def test_without_the_number_of_cpus_the_share_is_not_known(one_run):
    """Cores are told, their share is absent, and nothing is judged."""
    builder = a_run(gpu=False)
    builder.read("process.cpu.time", 0.0, 100.0)

    process = process_of(builder, one_run)

    assert process.facts.rows[0].metrics == {"cpu_cores": 100.0}
    assert process.diagnosis.primary.kind == "NO_GPU"


def test_ranks_are_kept_apart(one_run):
    """Each rank has its own row, and the largest is the worst."""
    builder = a_run(gpu=False, ranks=2)
    builder.read("process.memory.usage", 1 * GIB, rank=0)
    builder.read("process.memory.usage", 3 * GIB, rank=1)

    facts = process_of(builder, one_run).facts

    assert facts.worst("rss_bytes") == (1, 3 * GIB)
    assert facts.representative("rss_bytes") == (0, 1 * GIB)
    assert facts.average("rss_bytes") == 2 * GIB


def test_a_run_without_readings_says_so(one_run):
    """NO_DATA, with what to try."""
    assert found_in(a_run(), one_run) == {"NO_DATA": "info"}
