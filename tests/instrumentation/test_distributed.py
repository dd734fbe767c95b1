from __future__ import annotations

import pytest
import torch
from tests.support.training import loader, model, seen, update
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from stepmeter.capture.identity import Identity
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.distributed import LateIdentity

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
