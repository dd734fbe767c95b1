import bisect
import random

import pytest

from stepmeter.samplers.ticks import CALIBRATION_TICKS, TickFollower

MS = 1_000_000


class Device:
    """A counter on a virtual clock: a call takes 10 µs, a sleep 50 µs more than asked."""

    def __init__(self, period_ms, jitter_ms=0.0, call_us=10, seed=1):
        chance = random.Random(seed)
        self.now = 1_234_567
        self.call_ns = call_us * 1000
        self.ticks = [round((n * period_ms + chance.uniform(-jitter_ms, jitter_ms)) * MS) for n in range(1, 5000)]
        self.asleep_ns = 0

    def read(self):
        self.now += self.call_ns
        return 10_000 * bisect.bisect_right(self.ticks, self.now)

    def sleep(self, duration_ns):
        self.asleep_ns += duration_ns
        self.now += duration_ns + 50_000


def follow(device, count):
    follower = TickFollower(device.read, lambda: device.now, device.sleep)
    return follower, [follower.next() for _ in range(count)]


@pytest.mark.parametrize("jitter_ms", [0, 1, 4])
@pytest.mark.parametrize("period_ms", [10, 20, 100])
def test_every_tick_lies_within_its_moments(period_ms, jitter_ms):
    """The counter moved between the two moments that a tick gives, and holds what it gives."""
    jitter_ms = min(jitter_ms, period_ms / 5)
    device = Device(period_ms, jitter_ms)
    _, ticks = follow(device, 100)

    for t_lo, t_hi, energy_mj in ticks:
        assert t_lo <= device.ticks[energy_mj // 10_000 - 1] <= t_hi
        assert t_hi - t_lo < 1.2 * MS


def test_the_period_is_learnt():
    """After a few ticks the period is known, and stays right while it drifts not."""
    follower, _ = follow(Device(100, 1.0), CALIBRATION_TICKS + 50)

    assert follower.period_ns == pytest.approx(100 * MS, rel=0.01)


@pytest.mark.parametrize(("period_ms", "reads_per_s"), [(100, 80), (20, 140), (10, 140)])
def test_readings_are_few(period_ms, reads_per_s):
    """Once locked, some ten readings a tick are enough, at 20 ticks a second at most."""
    device = Device(period_ms, 0.5)
    follower, _ = follow(device, CALIBRATION_TICKS + 1)
    reads, begun = follower.reads, device.now
    for _ in range(100):
        follower.next()

    assert (follower.reads - reads) / ((device.now - begun) / 1e9) < reads_per_s


def test_a_missed_tick_is_made_up_for():
    """A thread that was held up for half a second finds the phase again, and no tick has a wide moment."""
    device = Device(100)
    follower, _ = follow(device, 20)
    device.now += 512 * MS
    ticks = [follower.next() for _ in range(10)]

    assert all(tick.t_hi_ns - tick.t_lo_ns < 1.2 * MS for tick in ticks)


def test_slow_calls_widen_the_moments_honestly():
    """When a call takes 5 ms the moments are so far apart, and still hold the tick."""
    device = Device(100, call_us=5000)
    _, ticks = follow(device, 30)

    for t_lo, t_hi, energy_mj in ticks:
        assert t_lo <= device.ticks[energy_mj // 10_000 - 1] <= t_hi


def test_a_still_counter_gives_nothing():
    """A counter that does not move for a second gives no tick."""
    device = Device(100)
    device.ticks = []

    assert follow(device, 2)[1] == [None, None]


def test_a_counter_that_goes_backwards_is_a_tick():
    """After a driver reload the counter holds less; that is a tick like any other, for the reader to judge."""
    values = iter([500, 500, 500, 7, 7, 20])
    clock = iter(range(0, 10**9, MS))
    follower = TickFollower(lambda: next(values), lambda: next(clock), lambda _: None)

    assert follower.next().energy_mj == 7
