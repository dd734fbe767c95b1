from __future__ import annotations

import pytest
import torch
from tests.support.allocator import FakeAllocator
from tests.support.device import FakeDevice
from tests.support.training import loader, loss_of, model, update
from torch import nn

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import finish, install, installed, measures_memory, uninstall
from stepmeter.instrumentation.memory import PeakMemory

MIB = 1 << 20
BASE = 10 * MIB


@pytest.fixture
def allocator(monkeypatch):
    """The public functions over a simulated allocator that holds 10 MiB."""
    allocator = FakeAllocator()
    allocator.allocate(BASE)
    monkeypatch.setattr(torch._C, "_cuda_memoryStats", allocator.stats, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_resetPeakMemoryStats", allocator.reset_peaks, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_get_device_index", lambda device, optional: 0)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return allocator


@pytest.fixture
def recorder(allocator):
    """Watches torch as if its model were on device 0."""
    recorder = Recorder()
    install(recorder, strict=True)
    installed().boundaries.timer = FakeDevice().timer()
    installed().boundaries.memory = PeakMemory(0, "GPU-a", allocator.stats, allocator.reset_peaks)
    yield recorder
    uninstall()


class Hungry(nn.Module):
    """Takes so many MiB for the time of a forward."""

    def __init__(self, allocator):
        super().__init__()
        self.net, self.allocator, self.mib = model(), allocator, 1

    def forward(self, inputs):
        self.allocator.transient(self.mib * MIB)
        return self.net(inputs)


@pytest.fixture
def net(allocator):
    return Hungry(allocator)


def peaks(recorder):
    finish(recorder)
    return [memory.peak_allocated_bytes // MIB for memory in recorder.memory.drain()]


def test_peak_of_each_step(recorder, net, optimizer):
    """Each step has the peak of its own work, above what was held anyway."""
    for mib, batch in zip([5, 20, 1, 7], loader(4), strict=True):
        net.mib = mib
        update(net, optimizer, batch)
    assert peaks(recorder) == [15, 30, 11, 17]


def test_snapshot_names_device_and_step(recorder, net, optimizer, allocator):
    """A snapshot has the step's number, its device and the reserved peak, which the allocator keeps."""
    for mib, batch in zip([30, 1], loader(2), strict=True):
        net.mib = mib
        update(net, optimizer, batch)
    finish(recorder)
    first, second = recorder.memory.drain()
    assert (first.step, first.hw_id, first.peak_reserved_bytes) == (1, "GPU-a", 40 * MIB)
    assert (second.step, second.peak_allocated_bytes, second.peak_reserved_bytes) == (2, 11 * MIB, 40 * MIB)


def test_one_read_and_one_reset_a_step(recorder, net, optimizer, allocator):
    """A step of a plain loop costs one read of the statistics and one reset."""
    for number, batch in enumerate(loader(6)):
        update(net, optimizer, batch)
        if number == 0:
            allocator.reads = allocator.resets = 0
    assert (recorder.steps, allocator.reads, allocator.resets) == (6, 6, 6)


def test_accumulation_has_the_peak_of_the_group(recorder, net, optimizer):
    """The peak is that of all micro-batches of a step."""
    for number, (mib, batch) in enumerate(zip([5, 20, 1, 7], loader(4), strict=True)):
        net.mib = mib
        loss_of(net, batch).backward()
        if number % 2:
            optimizer.step()
    assert peaks(recorder) == [30, 17]


def test_evaluation_is_in_no_peak(recorder, net, optimizer):
    """What an evaluation takes is in the peak of no step."""
    for batch in loader(2):
        net.mib = 5
        update(net, optimizer, batch)
        net.mib = 500
        with torch.no_grad():
            for other in loader(2):
                loss_of(net, other)
    assert peaks(recorder) == [15, 15]


def test_without_loader(recorder, net, optimizer):
    """Without a loader each step has its own peak, though its end is known only when the next one has begun."""
    for mib, batch in zip([5, 20, 1], list(loader(3)), strict=True):
        net.mib = mib
        update(net, optimizer, batch)
    assert peaks(recorder) == [15, 30, 11]


def test_program_sees_its_own_peaks(recorder, net, optimizer, allocator):
    """`max_memory_allocated` is the peak since the program's own last reset, as without us."""
    for mib, batch in zip([5, 20, 1], loader(3), strict=True):
        net.mib = mib
        update(net, optimizer, batch)
    assert torch.cuda.max_memory_allocated() == 30 * MIB
    assert torch.cuda.max_memory_reserved() == 30 * MIB
    assert torch.cuda.memory_stats()["active_bytes.all.peak"] == 30 * MIB
    assert torch.cuda.memory_stats_as_nested_dict()["allocation"]["all"]["peak"] == 2
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == BASE
    net.mib = 3
    update(net, optimizer, batch)
    assert torch.cuda.max_memory_allocated() == 13 * MIB
    assert torch.cuda.memory_allocated() == BASE


def test_program_resets_inside_a_step(recorder, net, optimizer, allocator):
    """A reset by the program in the middle of a step hides none of the step's peak from us."""
    for number, batch in enumerate(loader(2)):
        net.mib = 20
        loss = loss_of(net, batch)
        if number == 1:
            torch.cuda.reset_peak_memory_stats()
            assert torch.cuda.max_memory_allocated() == BASE
        loss.backward()
        optimizer.step()
    assert peaks(recorder) == [30, 30]


def test_other_devices_are_left_alone(recorder, net, optimizer, allocator, monkeypatch):
    """Peaks of a device that is not measured are what the allocator says."""
    for batch in loader(2):
        net.mib = 50
        update(net, optimizer, batch)
    assert torch.cuda.max_memory_allocated("cuda:1") < torch.cuda.max_memory_allocated("cuda:0")


def test_accelerator_readers(recorder, net, optimizer, allocator, monkeypatch):
    """The readers of `torch.accelerator` show the program's own view too."""
    accelerator = torch.accelerator.memory
    monkeypatch.setattr(torch._C, "_accelerator_isAllocatorInitialized", lambda: True)
    monkeypatch.setattr(torch._C, "_accelerator_getDeviceStats", allocator.stats)
    monkeypatch.setattr(torch._C, "_accelerator_resetPeakStats", allocator.reset_peaks)
    monkeypatch.setattr(accelerator, "_get_device_index", lambda device, optional: 0)
    for mib, batch in zip([20, 1], loader(2), strict=True):
        net.mib = mib
        update(net, optimizer, batch)
    finish(recorder)
    assert torch.accelerator.max_memory_allocated() == 30 * MIB
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == BASE


@pytest.mark.parametrize(("value", "measured"), [(None, True), ("1", True), ("0", False), ("false", False)])
def test_switch(value, measured):
    """STEPMETER_MEMORY=0 leaves the allocator's counters alone."""
    assert measures_memory({} if value is None else {"STEPMETER_MEMORY": value}) is measured


def test_switched_off(monkeypatch):
    """Switched off, not even the readers are wrapped."""
    monkeypatch.setenv("STEPMETER_MEMORY", "0")
    before = torch.cuda.memory.reset_peak_memory_stats
    install(Recorder(), strict=True)
    try:
        assert torch.cuda.memory.reset_peak_memory_stats is before
    finally:
        uninstall()
