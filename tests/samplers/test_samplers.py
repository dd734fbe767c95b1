import os
import threading

from tests.support.simulated_nvml import python_under_nvml

from stepmeter.capture.channel import Channel
from stepmeter.capture.reading import Reading
from stepmeter.conventions.metrics import METRIC_BY_NAME
from stepmeter.samplers.host import HostSampler, ProcessSampler
from stepmeter.samplers.sampling import Sampling

GPU = """
from stepmeter.samplers.nvml import GpuSampler
sampler = GpuSampler(lambda: "GPU-00000000-0000-0000-0000-000000000000")
print({r.metric: r.value for r in sampler.read(0)})
"""


class Counting:
    """A sampler that counts its readings and stops the test after some of them."""

    def __init__(self, enough, done):
        self.readings = 0
        self.enough = enough
        self.done = done

    def read(self, at_ns):
        self.readings += 1
        if self.readings == self.enough:
            self.done.set()
        return [Reading("process.cpu.time", self.readings, at_ns)]


class Broken:
    def read(self, at_ns):
        raise OSError("gone")


def impossible():
    raise RuntimeError("no driver")


def sampled(*makers, enough=3):
    done, faults, channel = threading.Event(), [], Channel()
    sampling = Sampling(
        [*makers, lambda: Counting(enough, done)],
        channel,
        lambda where, error: faults.append((where, str(error))),
        interval_s=0.001,
    )
    sampling.start()
    assert done.wait(20)
    sampling.stop()
    sampling._thread.join(20)
    return channel.drain(), faults


def test_readings_follow_one_another():
    """Samplers are read again and again, each reading with its own, growing time."""
    readings, faults = sampled()

    assert [reading.value for reading in readings[:3]] == [1, 2, 3]
    assert sorted({reading.at_ns for reading in readings}) == [reading.at_ns for reading in readings]
    assert not faults


def test_a_broken_sampler_spares_the_others():
    """A sampler that raises is reported each time and the others go on."""
    readings, faults = sampled(Broken)

    assert len(readings) >= 3
    assert {("Broken", "gone")} == set(faults)


def test_a_sampler_that_cannot_be_made_is_absent():
    """Where there is nothing to read a sampler is left out without a word."""
    readings, faults = sampled(impossible)

    assert readings
    assert not faults


def test_process_is_read_in_base_units():
    """The process's CPU time is in seconds, and its memory in bytes."""
    cpu, memory = ProcessSampler().read(7)

    assert abs(cpu.value - sum(os.times()[:2])) < 1
    assert memory.value > 10_000_000
    assert 7 == cpu.at_ns == memory.at_ns


def test_host_is_read_as_shares_and_bytes():
    """The host's CPU is a share of all cores, and its memory use lies within its memory."""
    sampler = HostSampler()
    assert [reading.metric for reading in sampler.read(0)] == [
        "system.cpu.logical.count",
        "system.memory.usage",
        "system.memory.limit",
    ]
    cpu, cores, used, limit = sampler.read(1)

    assert 0 <= cpu.value <= 1
    assert os.cpu_count() == cores.value
    assert 0 < used.value < limit.value


def test_gpu_is_read_by_uuid():
    """Utilization is a share, memory is in bytes, temperature in Celsius and power in watts."""
    assert eval(python_under_nvml(GPU, "H100:0x1a")) == {  # noqa: S307 - printed above
        "hw.gpu.utilization": 0.75,
        "hw.gpu.memory.usage": 10_000_000_000,
        "hw.gpu.memory.limit": 80_000_000_000,
        "hw.temperature": 60,
        "hw.power": 400.0,
    }


def test_one_failed_query_spares_the_others():
    """A query that the device does not support leaves out its own reading."""
    found = eval(python_under_nvml(GPU, "H100:0x1a", SIMNVML_FAIL="nvmlDeviceGetPowerUsage=3"))  # noqa: S307

    assert "hw.power" not in found
    assert len(found) == 4


def test_an_unknown_device_has_no_readings():
    """While nobody knows which device is ours, there is nothing to read."""
    code = "from stepmeter.samplers.nvml import GpuSampler\nprint(GpuSampler(lambda: None).read(0))"

    assert python_under_nvml(code, "H100:0x1a") == "[]"


def test_every_metric_is_registered():
    """Samplers read nothing that the registry does not know."""
    names = {reading.metric for sampler in (ProcessSampler(), HostSampler()) for reading in sampler.read(0)}

    assert names <= set(METRIC_BY_NAME)
