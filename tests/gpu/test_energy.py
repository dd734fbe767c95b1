"""What the simulated board is built to show, asked of a real one."""

import itertools
import json
import statistics
import sys
import time

import pytest
from tests.support.processes import PROGRAMS, query, stepmeter

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """Three seconds of work and three of rest, followed."""
    from stepmeter.capture.channel import Channel
    from stepmeter.samplers.energy import EnergySampling

    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    channel, faults = Channel(100_000), []
    locks = str(tmp_path_factory.mktemp("locks"))
    sampling = EnergySampling(lambda: uuid, "gpu-test", channel, lambda *fault: faults.append(fault), locks)
    sampling.start()
    time.sleep(2)
    matrix = torch.randn(4096, 4096, device="cuda")
    busy_ns = time.monotonic_ns()
    while time.monotonic_ns() < busy_ns + 3_000_000_000:
        matrix = matrix @ matrix / 64
        torch.cuda.synchronize()
    rest_ns = time.monotonic_ns()
    time.sleep(3)
    sampling.stop()
    assert not faults
    return channel.drain(), busy_ns, rest_ns


def series(readings, metric, **attributes):
    wanted = set(attributes.items())
    return [(r.at_ns, r.value) for r in readings[0] if r.metric == metric and wanted <= set(r.attributes)]


def test_the_counter_moves_in_ticks(readings):
    """The counter of a Volta or newer board moves each 5 to 200 ms, and most moments are known within a few ms."""
    ticks = [at for at, _ in series(readings, "hw.energy")]
    if not ticks:
        pytest.skip("this board has no energy counter")
    gaps_s = [gap for _, gap in series(readings, "stepmeter.energy.tick_gap")]

    assert 0.005 < statistics.median(b - a for a, b in itertools.pairwise(ticks)) / 1e9 < 0.3
    assert statistics.median(gaps_s) < 0.01


def test_work_takes_more_than_rest(readings):
    """Seconds of work take more energy than as many of rest, and neither is zero."""
    ticks = series(readings, "hw.energy")
    if not ticks:
        pytest.skip("this board has no energy counter")
    _, busy_ns, rest_ns = readings

    def joules(start_ns, end_ns):
        inside = [value for at, value in ticks if start_ns <= at <= end_ns]
        return inside[-1] - inside[0]

    busy_j, rest_j = joules(busy_ns, rest_ns), joules(rest_ns + 500_000_000, rest_ns + 3_000_000_000)
    assert busy_j > rest_j > 0


def test_counter_and_power_agree_roughly(readings):
    """Over some seconds integrated instant power is within a third of the counter."""
    ticks, power = series(readings, "hw.energy"), series(readings, "hw.power", kind="instant")
    if not ticks or not power:
        pytest.skip("this board has no energy counter or no instant power")
    integral_j = sum(
        (p + q) / 2 * (u - t) / 1e9
        for (t, p), (u, q) in itertools.pairwise(power)
        if ticks[0][0] <= t and u <= ticks[-1][0]
    )

    assert integral_j == pytest.approx(ticks[-1][1] - ticks[0][1], rel=0.33)


def test_a_trainings_steps_are_priced(readings, tmp_path):
    """A training under `stepmeter run` has J per step between bounds; steps and idle time are the device's whole."""
    if not series(readings, "hw.energy"):
        pytest.skip("this board has no energy counter")
    done = stepmeter("run", "--name", "gpu", "--quiet", "--", sys.executable, PROGRAMS / "on_gpu.py", 100, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(stepmeter("energy", "gpu", "--json", cwd=tmp_path).stdout)["energy"]
    (rank,), (device,) = found["ranks"], found["devices"]

    assert found["reason"] is None
    assert rank["steps"] > 50
    assert rank["lower_mj"] <= rank["total_mj"] <= rank["upper_mj"]
    assert device["steps_mj"] + device["idle_mj"] == device["total_mj"]
    assert rank["hw_id"] == device["hw_id"] == f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    run = tmp_path / "stepmeter-runs" / "gpu"
    priced = query(
        run, "SELECT sum(energy_mj), sum(lower_mj), sum(upper_mj) FROM step_energy WHERE energy_mj IS NOT NULL"
    )
    total_mj, lower_mj, upper_mj = priced[0]
    assert lower_mj <= total_mj <= upper_mj
    assert total_mj == pytest.approx(rank["total_mj"], rel=0.2)


def test_a_span_has_the_energy_of_the_counter(readings):
    """A span of work has joules between its bounds, more than one of rest as long, and the counter's own difference."""
    from tests.support.recorded import recorded_spans

    from stepmeter import span
    from stepmeter.plugins import GpuEnergy

    if not series(readings, "hw.energy"):
        pytest.skip("this board has no energy counter")
    plugin = GpuEnergy()
    matrix = torch.randn(4096, 4096, device="cuda")
    with recorded_spans():
        with span("warm", plugins=[plugin]):
            time.sleep(2)
        with span("work", plugins=[plugin]) as work:
            end_ns = time.monotonic_ns() + 2_000_000_000
            while time.monotonic_ns() < end_ns:
                matrix = matrix @ matrix / 64
                torch.cuda.synchronize()
        time.sleep(1)
        with span("rest", plugins=[plugin]) as rest:
            time.sleep(2)
    plugin.close()

    for each in (work, rest):
        found = each.metrics
        assert found["gpu_energy_lower_j"] <= found["gpu_energy_j"] <= found["gpu_energy_upper_j"]
        assert found["gpu_energy_upper_j"] - found["gpu_energy_lower_j"] < 0.5 * found["gpu_energy_j"]
    assert work.metrics["gpu_energy_j"] > rest.metrics["gpu_energy_j"] > 0


def test_gpu_stats_and_memory_of_a_span(readings):
    """A span that works shows utilization, and one that allocates 64 MiB a peak and what it kept."""
    from tests.support.recorded import recorded_spans

    from stepmeter import span
    from stepmeter.plugins import GpuStats, TorchMemory

    matrix = torch.randn(4096, 4096, device="cuda")
    with recorded_spans():
        with span("work", plugins=[GpuStats(interval=0.05)]) as work:
            end_ns = time.monotonic_ns() + 2_000_000_000
            while time.monotonic_ns() < end_ns:
                matrix = matrix @ matrix / 64
                torch.cuda.synchronize()
        with span("kept", plugins=[TorchMemory()]) as kept:
            held = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
            torch.empty(128 << 20, dtype=torch.uint8, device="cuda")

    assert work.metrics["gpu_percent"] > 20
    assert kept.metrics["gpu_mem_delta_mb"] == held.numel() / (1 << 20)
    assert kept.metrics["gpu_mem_peak_mb"] >= 192
