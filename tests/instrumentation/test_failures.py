"""Every path of ours that runs on the training thread, made to raise: training goes on as if we were not there."""

from __future__ import annotations

import pytest
import torch
from tests.support.allocator import FakeAllocator
from tests.support.device import FakeDevice
from tests.support.failing import fail, note, path_id
from tests.support.training import loader, loss_of, update
from torch import nn

from stepmeter.capture.channel import Channel
from stepmeter.capture.region import Unresolved
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation import batch, dataloader, transfer
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.cuda import DeviceTimer
from stepmeter.instrumentation.distributed import LateIdentity
from stepmeter.instrumentation.explicit import trace_step, wrap_loader
from stepmeter.instrumentation.instrumentor import finish, install, installed, uninstall
from stepmeter.instrumentation.memory import PeakMemory
from stepmeter.instrumentation.roots import Roots
from stepmeter.instrumentation.silent import SilentUpdates
from stepmeter.instrumentation.undecided import Undecided
from stepmeter.instrumentation.waiting import BackwardWait
from stepmeter.telemetry.guard import Guard

PATHS = [
    (Boundaries, "fetch_begins"),
    (Boundaries, "publish_plain"),
    (Boundaries, "loader_ended"),
    (Boundaries, "copied"),
    (Boundaries, "forward_begins"),
    (Boundaries, "forward_ended"),
    (Boundaries, "backward_ended"),
    (Boundaries, "optimizer_repeats"),
    (Boundaries, "optimizer_ended"),
    (Boundaries, "update_begins"),
    (Boundaries, "updated"),
    (Boundaries, "warms_up"),
    (Boundaries, "_close"),
    (Boundaries, "_before_publication"),
    (Boundaries, "_evaluated"),
    (Boundaries, "finish"),
    (Boundaries, "step_begins"),
    (Boundaries, "step_ended"),
    (Undecided, "fetched"),
    (Undecided, "adopt"),
    (Undecided, "doubt"),
    (Recorder, "complete"),
    (Recorder, "publish"),
    (Recorder, "arm"),
    (Channel, "put"),
    (dataloader, "sizes_of"),
    (Roots, "scan"),
    (Roots, "parameters_added"),
    (Roots, "step_closed"),
    (Roots, "watch"),
    (Roots, "recompiled"),
    (LateIdentity, "scanned"),
    (LateIdentity, "refresh"),
    (SilentUpdates, "listen"),
    (BackwardWait, "scanned"),
    (BackwardWait, "step_closed"),
    (DeviceTimer, "ended"),
    (PeakMemory, "opened"),
    (PeakMemory, "closed"),
]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 1))

    def forward(self, inputs):
        return self.body(inputs)


def program():
    """A training that goes through all of it: copies, an evaluation, a compilation, a scaler, blocks of its own."""
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    losses = []
    for data in loader(4, shuffle=True):
        data[0].to("meta")
        losses.append(update(net, optimizer, data))
    net.eval()
    with torch.no_grad():
        losses.extend(loss_of(net, data).item() for data in loader(2))
    net.train()
    for data in list(loader(2)):
        loss = loss_of(net, data)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    losses.extend(update(net, optimizer, data) for data in list(loader(2)))
    net.compile(backend="eager")
    losses.extend(update(net, optimizer, data) for data in wrap_loader([tuple(data) for data in loader(3)]))
    for data in loader(3):
        with trace_step(net):
            losses.append(update(net, optimizer, data))
    return losses, [parameter.detach().clone() for parameter in net.parameters()]


def equal(one, other):
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


@pytest.fixture(scope="module")
def expected():
    """What the program computes without us."""
    return program()


@pytest.fixture
def watched():
    """Runs the program under a recorder with a device, memory and copies; what it computed, and what was lost."""
    faults = []

    def run():
        torch._dynamo.reset()
        guard = Guard()
        recorder = Recorder()
        recorder.on_fault = lambda kind, error: (faults.append(error), guard.fault(kind, error))
        recorder.on_armed = lambda: None
        install(recorder)
        boundaries = installed().boundaries
        switches = transfer.patches(boundaries, kind="meta")
        for switch in switches:
            switch.on()
        installed().switches.extend(switches)
        allocator = FakeAllocator()
        boundaries.timer = FakeDevice().timer()
        boundaries.memory = PeakMemory(0, None, allocator.stats, allocator.reset_peaks)
        result = program()
        finish(recorder)
        return result, recorder, guard, faults

    yield run
    uninstall()


def test_the_program_goes_through_every_path(watched, monkeypatch, expected):
    """Nothing fails by itself, and each of the paths is gone through."""
    gone = note(monkeypatch, PATHS)
    result, recorder, guard, _ = watched()
    assert equal(result, expected)
    assert guard.losses() == {}
    assert recorder.steps == 14
    assert set(PATHS) - gone == set()
    assert dataloader.sizes_of is not batch.sizes_of


@pytest.mark.parametrize("times", [1, 1_000_000])
@pytest.mark.parametrize("path", PATHS, ids=path_id)
def test_failure_of_ours_is_harmless(watched, monkeypatch, expected, capfd, path, times):
    """A path that raises once or always leaves results bit-identical, is counted, and is said once a kind."""
    fail(monkeypatch, path, times)
    result, recorder, guard, faults = watched()
    assert equal(result, expected)
    assert {str(error) for error in faults} == {path[1]}
    assert sum(guard.losses().values()) == len(faults)
    said = capfd.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == len(guard.losses())
    if times == 1:
        assert recorder.steps >= 8


def test_dead_device_is_harmless(watched, monkeypatch, expected):
    """A device of which every call raises leaves results bit-identical, and its pairs are counted as lost."""
    monkeypatch.setattr(FakeDevice, "__init__", lambda device: device.__dict__.update(no_more_events=True))
    result, recorder, _, _ = watched()
    assert equal(result, expected)
    lost = sum(times.lost_pairs for _, times in Unresolved().release(recorder.timing.drain()))
    assert recorder.steps == 14
    assert lost > 14
