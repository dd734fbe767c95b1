import subprocess
import threading
import time

import pytest
from tests.support.allocator import FakeAllocator
from tests.support.recorded import recorded_spans
from tests.support.simulated_nvml import python_under_nvml

from stepmeter import span, start_span
from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics
from stepmeter.plugins import CpuTime, GpuStats, TorchMemory, torch_memory

MB = 1 << 20
MS = 1_000_000


@pytest.fixture(autouse=True)
def recorder():
    with recorded_spans() as (made, _):
        yield made


class Timed:
    """A span of a given length, as a plugin sees it."""

    def __init__(self, duration_ms):
        self.duration_ms = duration_ms


def test_cpu_time_is_paired_by_span():
    """Two overlapping spans that end in the order of their starts keep their own CPU time."""
    times_ns = iter([0, 1000 * MS, 2000 * MS, 4000 * MS])
    plugin = CpuTime(lambda: next(times_ns))
    first, second = Timed(1000), Timed(1000)
    plugin.start(first)
    plugin.start(second)

    assert plugin.end(first) == {"cpu_time_ms": 2000, "cpu_percent": 200}
    assert plugin.end(second) == {"cpu_time_ms": 3000, "cpu_percent": 300}
    assert plugin.end(second) == {}


def test_cpu_time_of_a_busy_span_is_there():
    """A span that computes has CPU time; one that ends on another thread too."""
    plugin = CpuTime()
    with span("busy", plugins=[plugin]) as busy:
        sum(range(300_000))
    elsewhere = start_span("elsewhere", plugins=[plugin])
    thread = threading.Thread(target=elsewhere.end)
    thread.start()
    thread.join()

    assert busy.metrics["cpu_time_ms"] > 0
    assert "cpu_percent" in elsewhere.metrics
    assert plugin._started_ns == {}


class FakeTorchAllocator:
    """The allocator of the fake, as the plugin sees it."""

    def __init__(self, fake):
        self.fake = fake

    def read(self):
        held = self.fake.stats()["allocated_bytes"]["all"]
        return held["current"], held["peak"]

    def reset(self):
        self.fake.reset_peaks()


@pytest.fixture
def allocator(monkeypatch):
    """A device whose allocator is the fake, under any of its names."""
    fake = FakeAllocator()
    peaks = torch_memory._Peaks(FakeTorchAllocator(fake))
    monkeypatch.setattr(torch_memory, "peaks_of", lambda _: peaks)
    return fake


def test_three_levels_keep_their_own_peaks(allocator):
    """Nested spans with peaks of 300, 200 and 50 MB report these, although the allocator has one peak."""
    with span("a", plugins=[TorchMemory()]) as a:
        allocator.transient(300 * MB)
        with span("b") as b:
            allocator.transient(200 * MB)
            with span("c") as c:
                allocator.transient(50 * MB)

    assert [each.metrics["gpu_mem_peak_mb"] for each in (a, b, c)] == [300, 200, 50]
    assert [each.metrics["gpu_mem_delta_mb"] for each in (a, b, c)] == [0, 0, 0]


def test_overlapping_spans_keep_their_own_peaks(allocator):
    """Two spans that overlap, of two plugins, have the peaks and deltas of their own time."""
    first = start_span("first", plugins=[TorchMemory()])
    allocator.allocate(100 * MB)
    second = start_span("second", plugins=[TorchMemory()])
    allocator.allocate(50 * MB)
    first.end()
    allocator.allocate(100 * MB)
    second.end()

    assert (first.metrics["gpu_mem_peak_mb"], second.metrics["gpu_mem_peak_mb"]) == (150, 250)
    assert (first.metrics["gpu_mem_delta_mb"], second.metrics["gpu_mem_delta_mb"]) == (150, 150)


def test_a_steps_peak_stays_right_beside_the_plugin(allocator, monkeypatch):
    """A plugin's reset inside a step takes nothing from the step's own peak, nor the step's from the span's."""
    from stepmeter.capture.step import StepCapture
    from stepmeter.instrumentation.memory import PeakMemory

    step, capture = PeakMemory(0, None, allocator.stats, allocator.reset_peaks), StepCapture()

    class Watched(FakeTorchAllocator):
        """As torch's public functions are while they are patched."""

        def reset(self):
            step.user_resets()
            super().reset()

    peaks = torch_memory._Peaks(Watched(allocator))
    monkeypatch.setattr(torch_memory, "peaks_of", lambda _: peaks)
    step.opened()
    allocator.transient(300 * MB)
    with span("forward", plugins=[TorchMemory()]) as forward:
        allocator.transient(100 * MB)
    step.closed(capture)

    assert capture.memory[1] == 300 * MB
    assert forward.metrics["gpu_mem_peak_mb"] == 100


def test_torch_memory_without_cuda_is_said_once(recorder):
    """Without CUDA a span has no memory metrics, and one line says why."""
    for _ in range(3):
        with span("x", plugins=[TorchMemory()]) as x:
            pass

    assert x.metrics == {}
    assert len(recorder.said) == 1


class Scripted:
    """A device whose readings are a list; the last stays."""

    def __init__(self, *readings):
        self.readings, self.read_all = list(readings), threading.Event()

    def read(self, at_ns):
        if len(self.readings) == 1:
            self.read_all.set()
        utilization, memory_mb = self.readings[0] if len(self.readings) == 1 else self.readings.pop(0)
        if utilization is None:
            raise OSError("driver gone")
        return [
            Reading(metrics.GPU_UTILIZATION.name, utilization, at_ns),
            Reading(metrics.GPU_MEMORY_USAGE.name, memory_mb * MB, at_ns),
        ]


def test_gpu_stats_are_means_and_peaks_of_the_whole_span():
    """A span's utilization is the mean of its samples and its memory their peak."""
    device = Scripted((0.2, 100), (0.4, 900), (0.9, 300), (0.5, 0))
    plugin = GpuStats(interval=0.005, make_source=lambda: device)
    window = start_span("x", plugins=[plugin])
    assert device.read_all.wait(10)
    window.end()
    plugin.close()

    assert window.metrics["gpu_mem_used_mb"] == 900
    assert 40 <= window.metrics["gpu_percent"] <= 60


def test_a_short_span_is_one_live_reading():
    """A span shorter than the interval reads once at its end."""
    plugin = GpuStats(interval=30, make_source=lambda: Scripted((0.3, 70)))
    with span("x", plugins=[plugin]) as x:
        pass
    plugin._stop.set()

    assert x.metrics == {"gpu_percent": 30, "gpu_mem_used_mb": 70}


def test_the_sampling_thread_ends_by_itself_and_when_closed(monkeypatch):
    """No thread stays when no span is open; the next span starts one again."""
    from stepmeter.plugins import gpu_stats

    monkeypatch.setattr(gpu_stats, "_IDLE_S", 0.02)
    plugin = GpuStats(interval=0.005, make_source=lambda: Scripted((0.3, 70)))
    for _ in range(2):
        with span("x", plugins=[plugin]):
            pass
        deadline = time.monotonic() + 10
        while plugin._thread is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert plugin._thread is None

    with span("x", plugins=[plugin]):
        plugin.close()
    assert not any(thread.name == "stepmeter-gpu-stats" for thread in threading.enumerate())


def test_a_device_that_goes_away_leaves_no_partial_measurement():
    """A sample that fails ends the measurement of the spans that are open."""
    device = Scripted((0.2, 100), (None, 0))
    plugin = GpuStats(interval=0.005, make_source=lambda: device)
    window = start_span("x", plugins=[plugin])
    assert device.read_all.wait(10)
    time.sleep(0.05)
    window.end()
    plugin.close()

    assert window.metrics == {}


def test_gpu_stats_finds_its_device_by_uuid():
    """Under a simulated NVML the second visible GPU is read through its UUID."""
    code = (
        "from stepmeter.plugins import GpuStats\n"
        "from stepmeter import span\n"
        "from tests.support.recorded import recorded_spans\n"
        "with recorded_spans():\n"
        "    with span('x', plugins=[GpuStats(interval=30)]) as x: pass\n"
        "print(sorted(x.metrics))"
    )
    try:
        said = python_under_nvml(code, "H100:0x1a", PYTHONPATH=".")
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.fail(str(getattr(error, "stderr", error)))

    assert said == "['gpu_mem_used_mb', 'gpu_percent']"
