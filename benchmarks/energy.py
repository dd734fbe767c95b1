"""Energy per step against scripted truth, beside Zeus 0.16 on the same simulated device in the same run; and speed.

The device's power follows a script: steps of three phases (520, 640 and 300 W, each with 5 % noise) with idle gaps of
0 to 10 ms at 110 W. Its counter moves each 100 ms with 1 ms of jitter. Zeus begins and ends a window around each step;
our sampler follows the counter in a process of its own and knows only when the steps were. The truth of a window is
the script's own integral over where the window really was: a fraction of a millisecond late, as processes wake up. When
the phases' work was we know as a device's clock shows it, that is from the script; in brackets is what comes of taking
each window to be busy from end to end, which lays the late part of a short step into the gap after it.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from stepmeter.analysis.energy.attribution import DeviceReadings, estimate
from stepmeter.analysis.energy.counter import CounterTimeline
from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.analysis.energy.sharing import Windows, union

sys.path[:0] = [str(Path(__file__).parent / "peers"), str(Path(__file__).parent.parent)]
from environment import python_of  # noqa: E402 - found by the line above
from tests.support.simulated_nvml import UUID, Power, environment  # noqa: E402 - likewise

PEER = "zeus==0.16.0"
PEERS = Path(__file__).parent / "peers"
MS, S = 1_000_000, 1_000_000_000
PHASES = ((520, 0.35), (640, 0.45), (300, 0.2))
IDLE_W = 110
LEAD_S = 20
"""Before the first step: what a busy machine takes to start Zeus, whose first windows would else be late."""
STEPS = {5: 300, 20: 200, 50: 100, 80: 80, 150: 60, 250: 40, 500: 20}
"""Duration in ms and number of steps."""
ACCURATE_MS = (20, 50, 80, 150)
"""Durations for which the target holds: at most a fifth of Zeus's mean error."""


def plan(origin_ns):
    """The script, and where its steps are: (duration in ms, start, end)."""
    chance = random.Random(11)
    pieces, steps, now_ns = [(IDLE_W, LEAD_S)], [], origin_ns + LEAD_S * S
    for step_ms, count in STEPS.items():
        for _ in range(count):
            length_ns = round(step_ms * chance.uniform(0.9, 1.1) * MS)
            gap_ns = chance.randrange(10 * MS)
            steps.append((step_ms, now_ns, now_ns + length_ns))
            pieces += [(watts * chance.uniform(0.95, 1.05), share * length_ns / S) for watts, share in PHASES]
            pieces.append((IDLE_W, gap_ns / S))
            now_ns += length_ns + gap_ns
    return Power([*pieces, (IDLE_W, 30.0)], origin_ns), steps


def measure(directory):
    """Run Zeus and our sampler over the same script.

    Returns:
        The script, where its steps are, rows of (duration in ms, start, end, Zeus's J or None), our readings, why
        there is no Zeus.
    """
    try:
        zeus, why = python_of(PEER), ""
    except (OSError, subprocess.SubprocessError) as error:
        zeus, why = None, f"{PEER} can't be installed: {type(error).__name__}"
    power, steps = plan(time.monotonic_ns())
    environ = environment(SIMNVML_JITTER_MS="1", **power.environ(Path(directory) / "power"))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environ}
    ours = subprocess.Popen([sys.executable, PEERS / "ticks_stepmeter.py", UUID], **pipes)
    theirs = subprocess.Popen([zeus, PEERS / "windows_zeus.py"], stderr=subprocess.DEVNULL, **pipes) if zeus else None
    windows = [(start, end, None) for _, start, end in steps]
    if theirs is not None:
        while theirs.stdout.readline().strip() != "ready":
            pass
        found, _ = theirs.communicate(json.dumps([(start, end) for _, start, end in steps]) + "\n")
        windows = json.loads(found)
    else:
        time.sleep(max(0.0, (steps[-1][2] - time.monotonic_ns()) / S))
    time.sleep(0.5)
    while ours.stdout.readline().strip() != "ready":
        pass
    readings = json.loads(ours.communicate()[0])
    return power, steps, [(ms, *window) for (ms, *_), window in zip(steps, windows, strict=True)], readings, why


def device_of(readings):
    """The readings as the analysis has them."""
    series = {}
    for metric, value, at_ns, attributes in readings["readings"]:
        kind = dict(attributes).get("kind", "")
        series.setdefault((metric, kind), []).append((at_ns, value))
    at_ns, joules = (np.array(column) for column in zip(*series["hw.energy", ""], strict=True))
    gap_ns = np.array([round(gap * S) for _, gap in series["stepmeter.energy.tick_gap", ""]])
    counter = CounterTimeline(UUID, at_ns - gap_ns, at_ns, np.rint(joules * 1000).astype(np.int64))
    power_ns, watts = (np.array(column) for column in zip(*series["hw.power", "instant"], strict=True))
    return DeviceReadings(UUID, counter, PowerTimeline(UUID, power_ns, np.rint(watts * 1000).astype(np.int64)), 650_000)


def phases(steps):
    """The phases as a device's clock shows them."""
    start_ns, end_ns = (np.array([step[column] for step in steps], dtype=np.int64) for column in (1, 2))
    shares = np.cumsum([0.0, *(share for _, share in PHASES)])
    edges = [start_ns + np.rint((end_ns - start_ns) * share).astype(np.int64) for share in shares]
    return [Windows(edges[index], edges[index + 1]) for index in range(len(PHASES))]


def accuracy():
    with tempfile.TemporaryDirectory() as directory:
        power, steps, windows, readings, why = measure(directory)
    device = device_of(readings)
    step_ms = np.array([row[0] for row in windows])
    start_ns, end_ns = (np.array([row[column] for row in windows], dtype=np.int64) for column in (1, 2))
    truth = np.array([power.energy_j(start, end) * 1000 for start, end in zip(start_ns, end_ns, strict=True)])
    sharing = device.sharing(*phases(steps))
    found = estimate(device, start_ns, end_ns, sharing)
    plain = estimate(device, start_ns, end_ns, device.sharing(union(start_ns, end_ns)))
    theirs = None if why else np.array([row[3] * 1000 for row in windows])
    outside = 0
    for ms in STEPS:
        chosen = step_ms == ms
        outside += int(((truth < found.lower_mj) | (truth > found.upper_mj))[chosen].sum())
        yield _accuracy_row(ms, truth[chosen], found, plain, chosen, None if theirs is None else theirs[chosen], why)
    yield {
        "what": "steps whose truth lies within their bounds",
        "measured": f"{len(truth) - outside} of {len(truth)}",
        "target": "all",
        "met": outside == 0,
    }
    total = np.diff(device.counter.grown_mj[[0, -1]])[0]
    edges = np.array(
        [*device.counter.tick_ns[:1], *np.stack([start_ns, end_ns], axis=1).ravel(), device.counter.tick_ns[-1]]
    )
    tiles = estimate(device, edges[:-1], edges[1:], sharing)
    yield {
        "what": "steps and gaps less the counter's own difference",
        "measured": f"{int(tiles.value_mj.sum() - total)} mJ of {total / 1000:.0f} J",
        "target": "0 mJ",
        "met": int(tiles.value_mj.sum()) == int(total),
    }
    gap_ms = np.median(device.counter.gap_ns) / MS
    yield {
        "what": "following the counter, of one core",
        "measured": (
            f"{readings['cpu_share']:.2%}, {readings['reads_per_s']:.0f} calls/s, ticks known within {gap_ms:.2f} ms"
        ),
        "target": "<= 1 %",
        "met": readings["cpu_share"] <= 0.01,
    }


def _accuracy_row(ms, truth, found, plain, chosen, theirs, why):
    def error(values):
        return float(np.abs(values / truth - 1).mean())

    ours, half = found.value_mj[chosen], ((found.upper_mj - found.lower_mj)[chosen] / 2 / truth).mean()
    bias = float(ours.sum() / truth.sum() - 1)
    busy = plain.value_mj[chosen]
    busy_bias = float(busy.sum() / truth.sum() - 1)
    text = f"{error(ours):.1%}, sum {bias:+.2%} (busy/idle {error(busy):.1%}, {busy_bias:+.2%}), bound +-{half:.0%}"
    if theirs is not None:
        zero, their_bias = float((theirs == 0).mean()), float(theirs.sum() / truth.sum() - 1)
        text += f"; Zeus {error(theirs):.1%}, {zero:.0%} zero, sum {their_bias:+.1%}"
    aimed = ms in ACCURATE_MS and theirs is not None
    met = (
        (error(ours) <= error(theirs) / 5 and abs(bias) <= 0.01)
        if aimed
        else (None if theirs is None else abs(bias) <= 0.01)
    )
    return {
        "what": f"mean error of a step's energy, {ms} ms",
        "measured": text if theirs is not None else f"{text}; {why}",
        "target": "<= 1/5 of Zeus, sum within 1 %" if ms in ACCURATE_MS else "sum within 1 %",
        "met": met,
    }


def speed(steps=1_000_000, ranks=8):
    """Strict energies and their checked remainder of a million windows on each of eight devices, power at 10 Hz."""
    chance = np.random.default_rng(3)
    length_ns = chance.integers(80 * MS, 100 * MS, steps)
    end_ns = np.cumsum(length_ns + chance.integers(0, 10 * MS, steps))
    start_ns = end_ns - length_ns
    time_ns = np.arange(0, int(end_ns[-1]) + S, 100 * MS)
    devices = [
        PowerTimeline(f"{rank}", time_ns, chance.integers(70_000, 700_000, len(time_ns))) for rank in range(ranks)
    ]
    begun_s = time.perf_counter()
    for device in devices:
        windows, _ = device.split(start_ns, end_ns)
        windows.floored_mj()
    took_s = time.perf_counter() - begun_s
    yield {
        "what": f"exact energy of {steps:,} windows x {ranks}, power at 10 Hz",
        "measured": f"{took_s:.1f} s",
        "target": "<= 5 s",
        "met": took_s <= 5,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    found = [*accuracy(), *speed()]
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    for row in found:
        print(f"{row['what']:<58} {row['measured']:<100} {row['target']}")


if __name__ == "__main__":
    main()
