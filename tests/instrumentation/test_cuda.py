from __future__ import annotations

import pytest
import torch
from tests.support.device import MS, FakeDevice
from tests.support.training import loader, loss_of, model, update
from torch import nn

from stepmeter.capture.facts import step_facts
from stepmeter.capture.identity import Identity
from stepmeter.capture.region import Unresolved
from stepmeter.capture.step import Recorder, StepTimeBatch
from stepmeter.conventions.phases import PHASES
from stepmeter.instrumentation import cuda
from stepmeter.instrumentation.axis import DeviceAxis
from stepmeter.instrumentation.instrumentor import finish, install, installed, uninstall

STEP_MS = {"forward": 30, "backward": 40, "optimizer": 10}


class Busy(nn.Module):
    """Queues 30 ms of device work in forward, 40 ms in backward; the optimizer's hook queues 10 ms."""

    def __init__(self, device):
        super().__init__()
        self.net, self.device = model(), device

    def forward(self, inputs):
        self.device.work(30)
        result = self.net(inputs)
        if result.requires_grad:
            result.register_hook(lambda _grad: self.device.work(40))
        return result


@pytest.fixture
def device():
    return FakeDevice()


@pytest.fixture
def trained(recorder, device):
    """Trains so many steps on the device, with 5 ms of work before each forward and 15 ms after each update."""

    def train(batches=3):
        installed().boundaries.timer = device.timer()
        net = Busy(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        optimizer.register_step_pre_hook(lambda *_: device.work(10))
        for batch in loader(batches):
            device.work(5)
            update(net, optimizer, batch)
            device.work(15)
        return recorder.timing.drain()

    return train


def test_phases_on_the_device_clock(trained, device):
    """Each phase has the time that the device took for it, whenever the host asked for it."""
    batches = trained()
    device.run()
    released = list(Unresolved().release(batches))
    assert len(released) == 3
    for batch, times in released:
        facts = step_facts(batch, times)
        assert {name: facts.phases[name].gpu_ns for name in STEP_MS} == {name: ms * MS for name, ms in STEP_MS.items()}
        assert facts.phases["input_wait"].gpu_ns == 0
        assert facts.traced_gpu_ns == 100 * MS
        assert facts.device_end_ns - facts.device_start_ns == 100 * MS
        assert facts.regions_gpu_ns == (0, 30 * MS, 40 * MS, 10 * MS)
        assert times.lost_pairs == 0


def test_nothing_waits_for_the_device(trained, device):
    """As long as the device has not got to a step it is held back, and so is every step behind it."""
    held = Unresolved()
    assert list(held.release(trained())) == []
    device.run(99)
    assert list(held.release([])) == []
    device.run(1)
    assert [batch.step for batch, _ in held.release([])] == [1]
    device.run()
    assert [batch.step for batch, _ in held.release([])] == [2, 3]


def test_later_steps_wait_for_earlier_ones(trained, device):
    """A step that is done on another stream before an earlier one is given out after it."""
    batches = trained()
    last = [event for region in batches[0].regions for event in region[3]][-1]
    device.run()
    last.at_ns += 1_000 * MS
    held = Unresolved()
    assert list(held.release(batches)) == []
    device.work(1_000)
    device.run()
    assert [batch.step for batch, _ in held.release([])] == [1, 2, 3]


def test_give_up_at_the_end(trained):
    """What the device has not done at the end of the program is given out without device times."""
    held = Unresolved()
    list(held.release(trained()))
    assert [(batch.step, times) for batch, times in held.give_up()] == [(1, None), (2, None), (3, None)]
    assert not held.waiting


def test_failed_events_are_lost_pairs(trained, device):
    """A pair that fails is counted, takes its phase's device time and leaves the other phases theirs."""
    batches = trained(2)
    device.run()
    device.broken.add(batches[0].regions[1][3][1].number)
    (first, times), (second, whole) = Unresolved().release(batches)
    facts = step_facts(first, times)
    assert times.lost_pairs == 1
    assert facts.phases["forward"].gpu_ns is None
    assert facts.phases["backward"].gpu_ns == 40 * MS
    assert facts.phases["forward"].cpu_ns > 0
    assert (whole.lost_pairs, step_facts(second, whole).phases["forward"].gpu_ns) == (0, 30 * MS)


def test_no_events_to_be_had(trained, device):
    """Where events can't be made steps complete without device times, and the loss is counted."""
    device.no_more_events = True
    released = list(Unresolved().release(trained()))
    assert [batch.step for batch, _ in released] == [1, 2, 3]
    assert all(times.traced_ns is None and set(times.regions_ns) == {None} for _, times in released)
    assert released[0][1].lost_pairs > 0


def test_events_are_pooled(recorder, device):
    """Events of resolved steps are used again."""
    held = Unresolved()
    for _ in range(10):
        net = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        installed().boundaries.timer = installed().boundaries.timer or device.timer()
        for inputs, _ in loader(3):
            net(inputs).sum().backward()
            optimizer.step()
        device.run()
        list(held.release(recorder.timing.drain()))
    assert device.records > 200
    assert device.events_made < 50


def test_evaluation_and_aborted_steps_cost_no_step(recorder, device):
    """Events of an evaluation and of an update that raised belong to no step, and later steps are whole."""
    installed().boundaries.timer = device.timer()
    net = Busy(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(loader(4)):
        if number == 1:
            with torch.no_grad():
                loss_of(net, batch)
        elif number == 2:
            with pytest.raises(RuntimeError):
                net(batch[0][:, :3])
        else:
            update(net, optimizer, batch)
    finish(recorder)
    device.run()
    released = list(Unresolved().release(recorder.timing.drain()))
    assert [step_facts(*each).phases["forward"].gpu_ns for each in released] == [30 * MS] * 2


def test_step_without_loader_on_the_device(recorder, device):
    """Without a loader a step's device time ends with its update, as on the host."""
    installed().boundaries.timer = device.timer()
    net = Busy(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    optimizer.register_step_pre_hook(lambda *_: device.work(10))
    for batch in list(loader(3)):
        update(net, optimizer, batch)
        device.work(20)
    device.run()
    released = list(Unresolved().release(recorder.timing.drain()))
    assert [step_facts(*each).traced_gpu_ns for each in released] == [80 * MS] * 2


def test_graph_capture(trained, device):
    """While a CUDA graph is captured nothing is asked of the device and nothing is recorded on it."""
    batches = trained(2)
    device.run()
    timer = installed().boundaries.timer
    held = Unresolved()
    timer.graph_capture_begins()
    assert list(held.release(batches)) == []
    timer.graph_capture_ended()
    assert len(list(held.release([]))) == 2
    records = device.records
    assert device.timer(capturing=True).mark() is None
    assert device.records == records


def test_graph_capture_is_seen():
    """The capture of a CUDA graph is seen from its beginning to its end, also when it fails."""
    timer, seen = FakeDevice().timer(), []
    patches = cuda.patches(timer, lambda: seen.append(timer.captures))
    originals = {name: vars(torch.cuda.CUDAGraph).get(name) for name in ("capture_begin", "capture_end")}

    class Graph(torch.cuda.CUDAGraph):
        def __new__(cls):
            return object.__new__(cls)

    for patch in patches:
        patch.on()
    graph = Graph.__new__(Graph)
    with pytest.raises(Exception, match=r".*"):
        graph.capture_begin()
    assert (seen, timer.captures) == ([1], 0)
    for patch in reversed(patches):
        patch.off()
    assert originals == {name: vars(torch.cuda.CUDAGraph).get(name) for name in originals}


def test_cpu_model_makes_no_events(recorder):
    """A model on the CPU has no device clock, whatever the host has; its steps are out at once."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(2):
        update(net, optimizer, batch)
    batch = recorder.timing.drain()[0]
    assert (installed().boundaries.timer, installed().boundaries.memory) == (None, None)
    assert batch.device is None
    assert all(region[3] is None for region in batch.regions)
    assert [times for _, times in Unresolved().release([batch])] == [None]


def axis():
    return DeviceAxis(lambda begin, end: end - begin)


def test_axis_chains_from_its_anchor():
    """A moment is the anchor's plus elapsed device time, though the device got there long after it was asked."""
    line = axis()
    assert line.place(1_000, asked_ns=50_000, done_ns=90_000) == (50_000, None)
    assert line.place(1_700, asked_ns=50_100, done_ns=90_000) == (50_700, 1_700)


def test_axis_stays_between_asked_and_done():
    """No moment lies before the host asked for it or after it saw it done, and what follows is chained from there."""
    line = axis()
    line.place(0, asked_ns=1_000, done_ns=9_000)
    assert line.place(100, asked_ns=1_500, done_ns=9_000)[0] == 1_500
    assert line.place(200, asked_ns=1_510, done_ns=9_000)[0] == 1_600
    assert line.place(5_200, asked_ns=1_510, done_ns=6_000)[0] == 6_000
    assert line.place(5_300, asked_ns=1_510, done_ns=9_000)[0] == 6_100


def test_axis_anchors_anew():
    """Every few seconds a later event becomes the anchor, so that a float32 of milliseconds stays exact."""
    line = axis()
    line.place(0, asked_ns=0, done_ns=1)
    second = 1_000_000_000
    assert line.place(9 * second, asked_ns=0, done_ns=99 * second) == (9 * second, 0)
    assert line.place(10 * second, asked_ns=0, done_ns=99 * second) == (10 * second, 10 * second)


def test_installation_makes_a_timer_for_a_device(monkeypatch):
    """A model on a CUDA device has its clock, memory and copies watched, and uninstall undoes all of it."""
    from stepmeter.instrumentation import memory, transfer

    recorder = Recorder()
    install(recorder, strict=True)
    before = torch.Tensor.to
    try:
        monkeypatch.setattr(memory, "of_device", lambda device, hw_id: (device, hw_id))
        installed()._train_on(torch.device("cuda:0"))
        boundaries = installed().boundaries
        assert boundaries.timer.device == torch.device("cuda:0")
        assert boundaries.memory == (torch.device("cuda:0"), None)
        assert torch.Tensor.to is not before
        assert torch.Tensor.to in torch.nn.parameter.UninitializedTensorMixin._allowed_methods
        assert transfer.torch is torch
    finally:
        uninstall()
    assert torch.Tensor.to is before


def test_a_loader_that_copies_its_batch(device):
    """What a loader copies to the device within a fetch is h2d and traced time, and no input wait, on both clocks."""
    timer, regions = device.timer(), []
    now_ms = 0

    def region(phase, milliseconds, *inner):
        nonlocal now_ms
        start_ms, mark = now_ms, timer.mark()
        for each in inner:
            region(*each)
        device.work(milliseconds)
        now_ms += milliseconds
        regions.append((PHASES.index(phase), start_ms * MS, now_ms * MS, timer.pair(mark)))

    for _ in range(2):
        region("input_wait", 3, ("h2d", 7))
        region("forward", 30)
        region("backward", 40)
    region("optimizer", 10)
    batch = StepTimeBatch(
        1, 0, now_ms * MS, regions, 2, None, None, warmup=False, identity=Identity(), device=timer.ended()
    )
    device.run()
    facts = step_facts(batch, batch.device.resolve(regions))

    assert {name: phase.gpu_ns // MS for name, phase in facts.phases.items()} == {
        "input_wait": 6,
        "h2d": 14,
        "forward": 60,
        "backward": 80,
        "optimizer": 10,
    }
    assert (facts.traced_cpu_ns, facts.traced_gpu_ns) == (164 * MS, 164 * MS)
