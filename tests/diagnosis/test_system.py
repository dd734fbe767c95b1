"""Each rule on hosts and GPUs on both sides of its threshold, through a store."""

from __future__ import annotations

import pytest
from tests.support.step_time import RunBuilder

GIB = 1024**3


def a_run(*, gpu=True):
    """One rank, 50 steps of 100 ms."""
    return RunBuilder(gpu=gpu, strategy="single", memory_limit_bytes=80 * GIB, power_limit_w=700.0).rank(
        0, range(1, 51), forward=30.0
    )


def gpu_read(builder, metric, *values, hw_id="GPU-0"):
    builder.read(metric, *values, hw_id=hw_id, hw_type="gpu")
    return builder


def system_of(builder, one_run):
    return one_run.analyze(builder).system


def kinds_of(builder, one_run):
    return [(issue.kind, issue.severity) for issue in system_of(builder, one_run).diagnosis.issues]


@pytest.mark.parametrize(
    ("peak_gib", "found"),
    [
        (63, ("NORMAL", "info")),
        (64, ("HIGH_GPU_MEMORY", "warn")),
        (71, ("HIGH_GPU_MEMORY", "warn")),
        (72, ("VERY_HIGH_GPU_MEMORY", "crit")),
    ],
)
def test_gpu_memory_is_judged_by_its_peak(one_run, peak_gib, found):
    """Of 80 GiB 64 are a warning and 72 are critical, however low it is otherwise."""
    builder = gpu_read(a_run(), "hw.gpu.memory.usage", 8 * GIB, peak_gib * GIB, 8 * GIB)

    assert kinds_of(builder, one_run) == [found]


@pytest.mark.parametrize(("peak_c", "fires"), [(84.0, False), (85.0, True)])
def test_gpu_temperature_is_judged_by_its_peak(one_run, peak_c, fires):
    """85 degrees are critical, 84 are not."""
    builder = gpu_read(a_run(), "hw.temperature", 40.0, peak_c, 40.0)

    assert (("HIGH_GPU_TEMPERATURE", "crit") in kinds_of(builder, one_run)) is fires


@pytest.mark.parametrize(("power_w", "fires"), [(559.0, False), (560.0, True)])
def test_gpu_power_is_judged_by_its_mean(one_run, power_w, fires):
    """560 of 700 W on average are a warning; peaks do not count."""
    builder = gpu_read(a_run(), "hw.power", power_w - 100.0, power_w + 100.0)

    assert (("HIGH_GPU_POWER", "warn") in kinds_of(builder, one_run)) is fires


@pytest.mark.parametrize(("peak_gib", "fires"), [(79, False), (80, True)])
def test_host_memory_is_judged_by_its_peak(one_run, peak_gib, fires):
    """80 of 100 GiB are a warning."""
    builder = a_run()
    builder.read("system.memory.usage", GIB, peak_gib * GIB)
    builder.read("system.memory.limit", 100 * GIB)

    assert (("HIGH_HOST_MEMORY", "warn") in kinds_of(builder, one_run)) is fires


@pytest.mark.parametrize(("share", "fires"), [(0.79, False), (0.80, True)])
def test_host_cpus_are_judged_by_their_mean(one_run, share, fires):
    """80 % on average are a warning; a full second does not count."""
    builder = a_run()
    builder.read("system.cpu.utilization", share - 0.2, share, share + 0.2)

    assert (("HIGH_CPU", "warn") in kinds_of(builder, one_run)) is fires


@pytest.mark.parametrize(
    ("share", "kind"),
    [
        (0.0, "LOW_GPU_UTILIZATION"),
        (0.29, "LOW_GPU_UTILIZATION"),
        (0.30, "MODERATE_GPU_UTILIZATION"),
        (0.70, "MODERATE_GPU_UTILIZATION"),
        (0.71, "NORMAL"),
    ],
)
def test_gpu_utilization_is_judged_by_its_mean(one_run, share, kind):
    """Below 30 % it is low, from there to 70 % moderate; a measured 0.0 is measured."""
    builder = gpu_read(a_run(), "hw.gpu.utilization", share, share)

    assert kinds_of(builder, one_run) == [(kind, "info")]


def test_the_worst_of_several_gpus_stands_for_its_node(one_run):
    """The fuller of two GPUs is named, and utilization is their mean."""
    builder = a_run()
    for hw_id, used_gib in (("GPU-0", 8), ("GPU-1", 80)):
        gpu_read(builder, "hw.gpu.memory.usage", used_gib * GIB, hw_id=hw_id)
        gpu_read(builder, "hw.gpu.memory.limit", 80 * GIB, hw_id=hw_id)
        gpu_read(builder, "hw.gpu.utilization", used_gib / 80, hw_id=hw_id)

    system = system_of(builder, one_run)

    assert system.diagnosis.primary.evidence["hw_id"] == "GPU-1"
    assert system.facts.rows[0].metrics["gpu_utilization_share"] == pytest.approx(0.55)
    assert system.facts.rows[0].metrics["gpu_memory_headroom_bytes"] == 0.0


def test_critical_findings_come_first(one_run):
    """A hot GPU before a busy host, and both before an idle GPU."""
    builder = gpu_read(gpu_read(a_run(), "hw.temperature", 90.0), "hw.gpu.utilization", 0.1)
    builder.read("system.cpu.utilization", 0.9)

    assert [kind for kind, _ in kinds_of(builder, one_run)] == [
        "HIGH_GPU_TEMPERATURE",
        "HIGH_CPU",
        "LOW_GPU_UTILIZATION",
    ]


def test_without_a_gpu_its_metrics_are_absent_and_the_host_is_judged(one_run):
    """The section says NO_GPU, and has what the host measured."""
    builder = a_run(gpu=False)
    builder.read("system.cpu.utilization", 0.5)

    system = system_of(builder, one_run)

    assert [issue.kind for issue in system.diagnosis.issues] == ["NO_GPU"]
    assert system.facts.rows[0].metrics == {"cpu_share": 0.5}


def test_readings_before_the_first_step_do_not_count(one_run):
    """An idle GPU while data were prepared says nothing about the training."""
    builder = gpu_read(a_run(), "hw.gpu.utilization", 0.9, 0.9)
    early = {**builder.points[0], "time_ns": builder.points[0]["time_ns"] - 10**12, "double_value": 0.0}
    builder.points.append(early)

    assert system_of(builder, one_run).facts.rows[0].metrics["gpu_utilization_share"] == pytest.approx(0.9)


def test_readings_of_another_attempt_do_not_count(one_run):
    """A run that was started again is judged by its latest attempt, of which there are no readings here."""
    builder = a_run().rank(0, range(1, 25), attempt=1)
    builder.read("system.cpu.utilization", 0.9)

    assert kinds_of(builder, one_run) == [("NO_DATA", "info")]


def test_a_run_without_readings_says_so(one_run):
    """NO_DATA, with what to try."""
    issue = system_of(a_run(), one_run).diagnosis.primary

    assert (issue.kind, issue.severity) == ("NO_DATA", "info")
    assert "stepmeter doctor" in issue.action
