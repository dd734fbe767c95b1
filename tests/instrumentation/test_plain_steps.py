from __future__ import annotations

import random

import pytest
import torch
from tests.support.training import loader, loss_of, model

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.instrumentor import finish, install, uninstall


def program(seed):
    """A training in which each batch is used in a way drawn by chance: most plainly, some not."""
    chance = random.Random(seed)
    net = model()
    optimizers = [torch.optim.SGD(net[0].parameters(), 0.01), torch.optim.Adam(net[2].parameters())]
    ways = ["plain"] * 6 + ["both", "accumulate", "evaluate", "twice", "nothing", "fail", "eval mode", "no update"]
    for _epoch in range(6):
        for batch in loader(8):
            way = chance.choice(ways)
            if way == "evaluate":
                with torch.no_grad():
                    for other in loader(2):
                        loss_of(net, other)
            if way == "nothing":
                continue
            if way == "fail":
                with pytest.raises(RuntimeError):
                    net(batch[0][:, :3])
                continue
            net.train(way != "eval mode")
            loss_of(net, batch).backward()
            net.train()
            if way == "accumulate":
                continue
            if way == "no update":
                loss_of(net, batch)
            optimizers[0].step()
            if way in {"both", "twice"}:
                optimizers[1].step()
            if way == "twice":
                loss_of(net, batch).backward()
                optimizers[0].step()


def shapes_of(seed):
    recorder = Recorder()
    install(recorder, strict=True)
    try:
        program(seed)
        finish(recorder)
        batches = recorder.timing.drain()
    finally:
        uninstall()
    return [([region[0] for region in batch.regions], batch.microbatches, batch.samples) for batch in batches]


@pytest.mark.parametrize("seed", range(12))
def test_short_way_is_the_long_way(seed, monkeypatch):
    """A step that is published at once has what a look at each of its events gives it, whatever steps are around it."""
    at_once = []
    publish = Boundaries.publish_plain

    def counted(boundaries, loader_number, start_ns):
        done = publish(boundaries, loader_number, start_ns)
        at_once.append(done)
        return done

    monkeypatch.setattr(Boundaries, "publish_plain", counted)
    short = shapes_of(seed)
    monkeypatch.setattr(Boundaries, "publish_plain", lambda *_: False)
    assert short == shapes_of(seed)
    assert sum(at_once) >= 3
