"""What the simulated board is built to show, asked of a real one."""

import itertools
import statistics
import time

import pytest

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
