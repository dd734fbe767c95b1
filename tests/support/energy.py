"""A device whose power is scripted, read as a perfect sampler would read it; no clock runs."""

import itertools
import random
from dataclasses import dataclass, field

import numpy as np
from tests.support.simulated_nvml import Power

from stepmeter.analysis.energy.attribution import DeviceReadings
from stepmeter.analysis.energy.counter import CounterTimeline
from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.analysis.energy.sharing import Windows

MS = 1_000_000
S = 1_000_000_000
PHASES = ((520, 0.35), (640, 0.45), (300, 0.2))
"""Watts and share of a busy step: forward, backward, optimizer."""
IDLE_W = 110


def ints(*values):
    return np.array(values, dtype=np.int64)


def power_of(*samples, hw_id="gpu"):
    """A timeline of (seconds, watts)."""
    return PowerTimeline(hw_id, ints(*(round(t * S) for t, _ in samples)), ints(*(round(w * 1000) for _, w in samples)))


def ticks_of(*ticks, gap_ns=0, hw_id="gpu"):
    """A counter of (seconds, joules), each tick known within a gap."""
    at = ints(*(round(t * S) for t, _ in ticks))
    return CounterTimeline(hw_id, at - gap_ns // 2, at + gap_ns // 2, ints(*(round(j * 1000) for _, j in ticks)))


@dataclass
class Scene:
    """Steps with idle gaps on a device whose counter ticks.

    Attributes:
        step_ms: Mean duration of a step; each differs by up to 10 %.
        gap_ms: Mean idle time between steps, 0 to twice as much.
    """

    step_ms: float
    gap_ms: float = 5.0
    period_ms: float = 100.0
    steps: int = 200
    seed: int = 3
    tick_gap_us: int = 570
    jitter_ms: float = 1.0
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)

    def __post_init__(self):
        chance = random.Random(self.seed)
        pieces, now = [(IDLE_W, 1.0)], S
        for _ in range(self.steps):
            length = round(self.step_ms * chance.uniform(0.9, 1.1) * MS)
            idle = round(self.gap_ms * chance.uniform(0, 2) * MS)
            self.start_ns.append(now)
            self.end_ns.append(now + length)
            pieces += [(watts * chance.uniform(0.95, 1.05), share * length / S) for watts, share in PHASES]
            pieces.append((IDLE_W, idle / S))
            now += length + idle
        pieces.append((IDLE_W, 1.0))
        self.power = Power(pieces)
        self.last_ns = now + S // 2
        self.readings = DeviceReadings("gpu", self._counter(chance), self._power(), 650_000)

    def _counter(self, chance):
        times = [
            round((number * self.period_ms + chance.uniform(-self.jitter_ms, self.jitter_ms)) * MS)
            for number in range(int(500 / self.period_ms), int(self.last_ns / MS / self.period_ms))
        ]
        seen = ints(*(t + round(chance.uniform(0, self.tick_gap_us * 1000)) for t in times))
        energy = ints(*(int(self.power.energy_j(0, t) * 1000) for t in times))
        return CounterTimeline("gpu", seen - self.tick_gap_us * 1000, seen, energy)

    def _power(self):
        times = range(S // 2, self.last_ns, 100 * MS)
        mean_mw = [round(self.power.energy_j(t - 25 * MS, t) / 0.025 * 1000) for t in times]
        return PowerTimeline("gpu", ints(*times), ints(*mean_mw))

    @property
    def windows(self):
        return ints(*self.start_ns), ints(*self.end_ns)

    @property
    def loads(self):
        """The phases, as a device's clock would show them."""
        start, end = self.windows
        edges = [start + np.rint((end - start) * sum(share for _, share in PHASES[:n])).astype(int) for n in range(4)]
        return [Windows(a, b) for a, b in itertools.pairwise(edges)]

    @property
    def truth_mj(self):
        return np.array([self.power.energy_j(a, b) * 1000 for a, b in zip(self.start_ns, self.end_ns, strict=True)])
