"""What holds on a real CUDA device; left out where there is none."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stepmeter.capture.facts import step_facts
from stepmeter.capture.region import Unresolved
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import finish, install, installed, uninstall

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

MIB = 1 << 20


@pytest.fixture
def recorder():
    """Watches torch strictly."""
    recorder = Recorder()
    install(recorder, strict=True)
    yield recorder
    uninstall()


def train(steps=8, width=2048, watch_peak=False):
    """Train on the device; the losses, and the peak that the program reads."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    losses = []
    for (inputs,) in DataLoader(TensorDataset(torch.randn(steps * 64, width)), batch_size=64):
        loss = net(inputs.to("cuda", non_blocking=True)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [loss.item() for loss in losses], torch.cuda.max_memory_allocated() if watch_peak else None


def released(recorder):
    finish(recorder)
    torch.cuda.synchronize()
    time.sleep(0.01)
    return list(Unresolved().release(recorder.timing.drain()))


def test_every_region_has_a_device_time(recorder):
    """Each region of each step has a time on the device's clock, and no pair is lost."""
    train()
    steps = released(recorder)
    assert len(steps) == 8
    for batch, times in steps:
        facts = step_facts(batch, times)
        assert set(facts.phases) == {"input_wait", "h2d", "forward", "backward", "optimizer"}
        assert all(phase.gpu_ns is not None for phase in facts.phases.values())
        assert times.lost_pairs == 0
        assert sum(ns for ns in times.regions_ns[1:]) <= facts.traced_gpu_ns * 1.01
        assert facts.device_start_ns <= facts.device_end_ns


def test_device_time_is_the_work_of_the_device(recorder):
    """A forward of ten times the work takes longer on the device, though asking for it takes the host no longer."""
    train(width=256)
    small = released(recorder)
    train(width=8192)
    large = released(recorder)
    forward_ns = [sorted(step_facts(*step).phases["forward"].gpu_ns for step in steps)[4] for steps in (small, large)]
    assert forward_ns[1] > 3 * forward_ns[0]


def test_device_times_lie_on_the_hosts_clock(recorder):
    """A step's device work begins after the host asked for it and has ended by the time the host waited for it."""
    train()
    steps = released(recorder)
    now_ns = time.monotonic_ns()
    for batch, times in steps:
        assert batch.start_ns <= times.start_ns <= times.end_ns <= now_ns


def test_memory_and_device_of_each_step(recorder):
    """Each step has its peaks and names its device as NVML does."""
    train()
    finish(recorder)
    snapshots = recorder.memory.drain()
    assert len(snapshots) == 8
    assert all(0 < snapshot.peak_allocated_bytes <= snapshot.peak_reserved_bytes for snapshot in snapshots)
    assert snapshots[0].hw_id.startswith("GPU-")
    assert recorder.identity.hw_id == snapshots[0].hw_id


def test_program_sees_the_same(recorder):
    """Losses and the peak that the program reads are the same with and without us."""
    watched = train(watch_peak=True)
    uninstall()
    alone = train(watch_peak=True)
    assert watched[0] == alone[0]
    assert watched[1] == pytest.approx(alone[1], rel=0.05)


def test_nothing_synchronizes(recorder):
    """Not one call of ours makes the host wait for the device."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        net = nn.Linear(512, 1).cuda()
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        for (inputs,) in DataLoader(TensorDataset(torch.randn(64, 512)), batch_size=16, pin_memory=True):
            net(inputs.to("cuda", non_blocking=True)).sum().backward()
            optimizer.step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert recorder.steps >= 3


def test_graph_capture(recorder):
    """A CUDA graph is captured undisturbed while steps are being resolved."""
    train()
    net = nn.Linear(64, 64).cuda()
    inputs = torch.randn(8, 64, device="cuda")
    net(inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = net(inputs)
        assert installed().boundaries.timer.mark() is None
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, net(inputs))
