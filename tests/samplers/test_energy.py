import itertools
import json
import os
import subprocess
import sys

import pytest
from tests.support.simulated_nvml import UUID, Control, Power, environment, python_under_nvml

from stepmeter.conventions.metrics import METRIC_BY_NAME
from stepmeter.samplers.lock import DeviceLock

FOLLOW = """
import json, sys, time
from stepmeter.capture.channel import Channel
from stepmeter.samplers.energy import EnergySampling

uuid, seconds, locks = sys.argv[1] if len(sys.argv) > 1 else "{uuid}", {seconds}, {locks!r}
channel, faults = Channel(100000), []
sampling = EnergySampling(lambda: uuid, "run-1", channel, lambda *fault: faults.append(fault), locks)
begun = time.monotonic()
sampling.start()
{meanwhile}
time.sleep(max(0, seconds - (time.monotonic() - begun)))
sampling.stop()
sampling._thread.join(10)
print(json.dumps(dict(
    readings=[list(r) for r in channel.drain()], faults=[str(f[1]) for f in faults],
    cpu_s=sampling.cpu_time_s, wall_s=time.monotonic() - begun, reads=sampling.reads,
)))
"""


@pytest.fixture
def follow(tmp_path):
    """Follow a simulated device for some seconds in a process of its own."""

    def run(seconds=2.0, meanwhile="", uuid=UUID, **environ):
        code = FOLLOW.format(uuid=uuid, seconds=seconds, locks=str(tmp_path), meanwhile=meanwhile)
        return json.loads(python_under_nvml(code, "H100:0x1a", **environ))

    return run


def values(found, metric, **attributes):
    wanted = attributes.items()
    return [
        (at_ns, value)
        for name, value, at_ns, found_attributes in found["readings"]
        if name == metric and wanted <= {key.replace(".", "_"): v for key, v in found_attributes}.items()
    ]


def test_ticks_are_the_scripts(follow, tmp_path):
    """The energy between ticks is the script's between the moments at which the counter is said to have moved."""
    power = Power([(250, 0.013), (600, 0.027), (420, 0.019)])
    found = follow(2.5, **power.environ(tmp_path / "power"))
    ticks, gaps = values(found, "hw.energy"), dict(values(found, "stepmeter.energy.tick_gap"))

    assert len(ticks) >= 12
    assert gaps.keys() == {at for at, _ in ticks}
    (first_ns, first_j), (last_ns, last_j) = ticks[0], ticks[-1]
    slack_ns = (gaps[first_ns] + gaps[last_ns]) * 1e9
    assert abs(last_j - first_j - power.energy_j(first_ns, last_ns)) <= 600 * slack_ns / 1e9 + 0.002
    assert not found["faults"]


def test_power_comes_beside(follow):
    """Instant power is read at each tick, the average once a second, the limit at once."""
    found = follow(2.0)

    assert {value for _, value in values(found, "hw.power", kind="instant")} == {400.0}
    assert 1 <= len(values(found, "hw.power", kind="average")) <= 3
    assert [value for _, value in values(found, "stepmeter.energy.power_limit")] == [650.0]
    assert [value for _, value in values(found, "stepmeter.energy.other_processes")] == [0]
    assert {reading[0] for reading in found["readings"]} <= set(METRIC_BY_NAME)


def test_a_board_without_a_counter_has_power_alone(follow):
    """On Pascal power is sampled ten times a second, and that there is no counter is said once."""
    found = follow(1.5, SIMNVML_ARCH="4")

    assert not values(found, "hw.energy")
    assert len(values(found, "hw.power", kind="instant")) >= 8
    assert values(found, "hw.errors", kind="NotSupported")[0][1] == 1


def test_a_missing_field_falls_back(follow):
    """Where instant power is not supported the documented reading stands in."""
    found = follow(1.5, SIMNVML_FIELD_FAIL="186=3")

    assert not values(found, "hw.power", kind="instant")
    assert any(name == "hw.power" and "kind" not in dict(more) for name, _, _, more in found["readings"])


def test_a_mig_instance_is_read_by_its_gpu(follow):
    """A MIG instance has no energy; its GPU's is read under the GPU's own UUID."""
    found = follow(1.5, uuid=UUID.replace("GPU", "MIG"), SIMNVML_MIG="1")

    assert values(found, "hw.energy", hw_id=UUID)
    assert values(found, "stepmeter.energy.instance", hw_id=UUID.replace("GPU", "MIG"), kind=UUID)


FAIL = """
import pynvml
time.sleep(0.6)
with open({control!r}, "r+b") as file:
    file.seek(16); file.write(({code}).to_bytes(4, "little") + ({lost}).to_bytes(4, "little"))
time.sleep(0.6)
with open({control!r}, "r+b") as file:
    file.seek(16); file.write(bytes(8))
"""


@pytest.mark.parametrize(
    ("code", "lost", "reason"),
    [(0, 1, "GpuIsLost"), (17, 0, "OperatingSystem"), (999, 0, "Unknown")],
)
def test_failures_are_survived_and_named(follow, tmp_path, code, lost, reason):
    """A device that fails in between is found anew when it is back, and the reason is counted."""
    control = Control(tmp_path / "control")
    meanwhile = FAIL.format(control=str(control.path), code=code, lost=lost)
    found = follow(3.2, meanwhile, SIMNVML_CONTROL=str(control.path), SIMNVML_PERIOD_MS="50")
    ticks = [at for at, _ in values(found, "hw.energy")]

    assert values(found, "hw.errors", kind=reason)
    assert max(b - a for a, b in itertools.pairwise(ticks)) > 5e8
    assert ticks[-1] > values(found, "hw.errors", kind=reason)[-1][0]
    assert not found["faults"]


@pytest.mark.parametrize(
    "failing", ["nvmlInitWithFlags=9", "nvmlDeviceGetHandleByUUID=27", "nvmlDeviceGetTotalEnergyConsumption=4"]
)
def test_what_is_not_there_from_the_start_is_named(follow, failing):
    """Without a driver or the device there are no readings but the reason, and no fault."""
    found = follow(1.2, SIMNVML_FAIL=failing)

    assert {name for name, *_ in found["readings"]} == {"hw.errors"}
    assert not found["faults"]


def test_following_takes_few_calls(follow):
    """After a second of calibration some 80 calls a second are enough; what they cost is measured in benchmarks."""
    found = follow(3.0)

    assert found["reads"] < 1300


def test_one_process_follows_a_device(tmp_path):
    """Of two processes of a run one follows the device; when it dies the other takes over."""
    first, second = (DeviceLock("run-1", UUID, str(tmp_path)) for _ in range(2))

    assert first.take()
    assert first.take()
    assert not second.take()
    assert DeviceLock("run-2", UUID, str(tmp_path)).take()
    first.release()
    assert second.take()


HOLD = """
import sys, time
from stepmeter.samplers.lock import DeviceLock

lock = DeviceLock("run-1", "u", sys.argv[1])
lock.take()
print("held", flush=True)
time.sleep(60)
"""


def test_the_dead_free_their_lock(tmp_path):
    """A holder that is killed holds nothing."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as holder:
        assert holder.stdout.readline() == b"held\n"
        lock = DeviceLock("run-1", "u", str(tmp_path))
        assert not lock.take()
        os.kill(holder.pid, 9)
        holder.wait()
    assert lock.take()


TWO = """
import json, sys, time
from stepmeter.capture.channel import Channel
from stepmeter.samplers.energy import EnergySampling

channels = [Channel(100000), Channel(100000)]
both = [EnergySampling(lambda: {uuid!r}, "run-1", channel, print, {locks!r}) for channel in channels]
counts = []
both[0].start()
time.sleep(0.5)
both[1].start()
time.sleep(1.2)
counts.append([sum(r.metric == "hw.energy" for r in channel.drain()) for channel in channels])
both[0].stop()
time.sleep(2.5)
counts.append([sum(r.metric == "hw.energy" for r in channel.drain()) for channel in channels])
both[1].stop()
print(json.dumps(counts))
"""


def test_ranks_take_turns(tmp_path):
    """Of two samplers on one device one sends; when it ends the other goes on."""
    code = TWO.format(uuid=UUID, locks=str(tmp_path))
    before, after = json.loads(python_under_nvml(code, "H100:0x1a"))

    assert before[0] > 0 == before[1]
    assert after[1] > 0


def test_slow_calls_are_followed_all_the_same(follow):
    """With 5 ms a call ticks are still found, each within moments that say how slow the calls were."""
    found = follow(2.5, SIMNVML_LATENCY_US="5000")
    gaps_s = [gap for _, gap in values(found, "stepmeter.energy.tick_gap")]

    assert len(gaps_s) >= 10
    assert min(gaps_s) > 0.005


BESIDE = """
import threading, time
from stepmeter.capture.channel import Channel
from stepmeter.samplers.energy import EnergySampling
sampling = EnergySampling(lambda: {uuid!r}, "beside", Channel(1000), print, {locks!r})
sampling.start()
end_s, last_s, worst_s = time.monotonic() + 4, time.monotonic(), 0.0
while time.monotonic() < end_s:
    time.sleep(0.01)
    now_s = time.monotonic()
    last_s, worst_s = now_s, max(worst_s, now_s - last_s)
print(sampling.reads > 0, worst_s < 1.5)
"""


def test_a_slow_driver_does_not_hold_the_program(tmp_path):
    """While calls of 2 s are under way the program's own thread goes on."""
    code = BESIDE.format(uuid=UUID, locks=str(tmp_path))

    assert python_under_nvml(code, "H100:0x1a", SIMNVML_LATENCY_US="2000000").splitlines()[-1].endswith("True")


def test_clocks_held_down_are_told(follow):
    """Once a second it is told whether power or heat holds the clocks down."""
    held = [value for _, value in values(follow(1.3, SIMNVML_THROTTLE="4"), "stepmeter.energy.throttled")]

    assert set(held) == {1}
