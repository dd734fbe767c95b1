from __future__ import annotations

import dataclasses

import pytest
import torch
from tests.support.training import loader, model, seen, update
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from stepmeter.capture.identity import Identity
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation import waiting
from stepmeter.instrumentation.distributed import LateIdentity, hw_id

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}


@pytest.fixture
def group():
    """A process group of one."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_single(recorder):
    """A process alone trains with strategy single, known from its first step on."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(3):
        update(net, optimizer, batch)
    assert {batch.identity for batch in recorder.timing.drain()} == {Identity(strategy="single")}


def test_ddp(recorder, group):
    """The wrapper is the root and names the strategy, from the first step on."""
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(3):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3
    assert recorder.identity.strategy == "ddp"


def test_group_wins_over_environment(group):
    """Once the process group is up it says what rank this is, whatever was known before."""
    recorder = Recorder(Identity(rank=7, world_size=9, local_rank=3))
    LateIdentity(recorder).refresh()
    assert recorder.identity == Identity(rank=0, world_size=1, local_rank=3, strategy="single")


def test_unknown_strategy_stays_unknown():
    """Several ranks without a known wrapper have no known strategy."""
    recorder = Recorder(Identity(rank=1, world_size=2))
    LateIdentity(recorder).scanned([model()])
    assert recorder.identity == Identity(rank=1, world_size=2)


def test_fsdp(recorder, group):
    """A model that `fully_shard` has changed in place is a root of strategy fsdp."""
    mesh = init_device_mesh("cpu", (1,))
    net = model()
    for layer in (net[0], net[2], net):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(3):
        update(net, optimizer, batch)
    batches = recorder.timing.drain()
    assert {batch.identity.strategy for batch in batches} == {"fsdp"}
    assert [len(batch.regions) for batch in batches] == [4] * 3


def test_group_that_comes_up_late(recorder):
    """A process group that comes up after the first steps is taken notice of."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(loader(9)):
        if number == 2:
            distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
            recorder.identity = dataclasses.replace(recorder.identity, rank=5)
        update(net, optimizer, batch)
    distributed.destroy_process_group()
    assert [batch.identity.rank for batch in recorder.timing.drain()] == [0, 0, 5, 0, 0, 0, 0, 0, 0]


class Properties:
    uuid = "3f2c0c5e-0000-0000-0000-000000000001"


def test_device_is_named_as_nvml_does(monkeypatch):
    """The GPU of a model is named by its UUID with NVML's prefix; a model on the CPU has none."""
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: Properties)
    assert hw_id(torch.device("cuda")) == f"GPU-{Properties.uuid}"
    assert hw_id(torch.device("cuda:0")) == f"GPU-{Properties.uuid}"
    assert hw_id(torch.device("cpu")) is None


def test_device_is_told_once():
    """The device of a model is told when it is found, and once; a model on the CPU has none to tell."""
    told = []
    identity = LateIdentity(Recorder())
    identity.on_device = told.append
    identity.scanned([model()])
    net = model().to("meta")
    identity.scanned(net.modules())
    identity.scanned(net.modules())
    assert told == [torch.device("meta")]


def test_what_ddp_measures_is_read_now_and_then(recorder, group):
    """How long backward waits is read at steps 4 to 11 and at step 101, and no measure of DDP's twice."""
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(140):
        update(net, optimizer, batch)
    waits = recorder.waits.drain()
    assert [step for step, _ in waits] == [*range(4, 12), 101]
    assert all(0 <= wait_ns < 1_000_000_000 for _, wait_ns in waits)


def test_without_ddp_nothing_waits(recorder):
    """A process alone has no such measure."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(5):
        update(net, optimizer, batch)
    assert recorder.waits.drain() == []


def test_backward_that_exchanged_nothing_has_no_wait():
    """Where DDP timed no exchange there is no wait, and a wait is what the exchange took beyond the computation."""
    assert waiting._wait_ns({}) is None
    assert waiting._wait_ns({"backward_comm_time": 0, "backward_compute_comm_overlap_time": 5}) is None
    assert waiting._wait_ns({"backward_comm_time": 50, "backward_compute_comm_overlap_time": 20}) == 30
    assert waiting._wait_ns({"backward_comm_time": 50, "backward_compute_comm_overlap_time": 60}) == 0
