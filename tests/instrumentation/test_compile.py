"""torch.compile never notices us, and what it compiles is marked."""

from __future__ import annotations

import logging
import shutil
from contextlib import contextmanager

import pytest
import torch
from tests.support.training import Net, loader, seen, update
from torch import nn

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import install, uninstall

# torch's own: inductor's imports warn, and dynamo looks at gradients that are not kept
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor"),
]

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def compilations():
    counters = torch._dynamo.utils.counters
    return {name: dict(counters[name]) for name in ("frames", "stats", "graph_break", "recompiles")}


@contextmanager
def counted(*, watch):
    """Counts compilations anew; gives a recorder that watches, or one that does not."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    recorder = Recorder()
    if watch:
        install(recorder, strict=True)
    try:
        yield recorder
    finally:
        uninstall()


def train(backend, *, watch, batches=6, compile_step=False):
    """Losses, and what was compiled for them."""
    with counted(watch=watch) as recorder:
        net = Net()
        run = torch.compile(net, backend=backend, fullgraph=True)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        if compile_step:
            optimizer.step = torch.compile(optimizer.step, backend=backend)
        losses = [update(run, optimizer, batch) for batch in loader(batches)]
        return losses, compilations(), seen(recorder) if watch else None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_same_compilations(backend, caplog):
    """The same frames are compiled as without us, once, without a graph break, a recompilation or a message more."""
    caplog.set_level(logging.WARNING)
    alone = train(backend, watch=False)
    messages = {record.getMessage() for record in caplog.records}
    watched = train(backend, watch=True)
    assert watched[:2] == alone[:2]
    assert watched[2] == [STEP] * 6
    assert {record.getMessage() for record in caplog.records} == messages


def compiled_whole(*, watch):
    """Losses and compilations of a compiled function that makes a whole update, backward included."""
    with counted(watch=watch) as recorder:
        net = Net()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        whole = torch.compile(update, backend="eager")
        losses = [whole(net, optimizer, batch) for batch in loader(5)]
        return losses, compilations(), recorder.steps


def test_compiled_update(caplog):
    """A compiled function that makes the whole update computes the same, in no more graphs and with no more breaks."""
    caplog.set_level(logging.WARNING)
    losses, alone, _ = compiled_whole(watch=False)
    messages = {record.getMessage() for record in caplog.records}
    watched_losses, watched, steps = compiled_whole(watch=True)
    assert watched_losses == losses
    assert watched["stats"]["unique_graphs"] <= alone["stats"]["unique_graphs"]
    assert watched["graph_break"].keys() <= alone["graph_break"].keys()
    assert watched["recompiles"] == alone["recompiles"]
    assert {record.getMessage() for record in caplog.records} == messages
    assert steps >= 4


def test_compiled_optimizer(caplog):
    """An optimizer whose `step` is compiled ends steps, in the same graphs as without us; its time is residual."""
    caplog.set_level(logging.WARNING)
    losses, alone, _ = train("eager", watch=False, compile_step=True)
    messages = {record.getMessage() for record in caplog.records}
    watched_losses, watched, steps = train("eager", watch=True, compile_step=True)
    assert watched_losses == losses
    assert watched.pop("frames")["total"] <= alone.pop("frames")["total"]
    assert watched == alone
    assert steps == [{name: count for name, count in STEP.items() if name != "optimizer"}] * 6
    assert {record.getMessage() for record in caplog.records} == messages


def test_compiled_optimizer_without_loader(recorder):
    """Without a loader too each update of a compiled `step` makes one step."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    optimizer.step = torch.compile(optimizer.step, backend="eager")
    for batch in list(loader(5)):
        update(net, optimizer, batch)
    assert [step["forward"] for step in seen(recorder)[:4]] == [1] * 4


def test_compiled_update_function(recorder):
    """A compiled function around `step`, as torch's tutorial has it, ends steps."""
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), 0.1)

    @torch.compile(backend="eager")
    def step():
        optimizer.step()

    for inputs, wanted in loader(5):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(inputs), wanted).backward()
        step()
    assert [step["forward"] for step in seen(recorder)] == [1] * 5


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_inductor():
    """With torch's own compiler too a batch is one step, and the losses are those without us."""
    alone = train("inductor", watch=False)
    watched = train("inductor", watch=True)
    assert watched[:2] == alone[:2]
    assert watched[2] == [STEP] * 6


def test_compiled_in_the_middle(recorder):
    """A model that is compiled in place between two steps shows every forward, before and after."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(loader(6)):
        if number == 3:
            net.compile(backend="eager", fullgraph=True)
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 6


def test_compiling_steps_are_warm_up(recorder):
    """The step that compiles is marked as warm-up, whenever it comes, and the steps after it are not."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    run = net
    for number, batch in enumerate(loader(6)):
        if number == 3:
            run = torch.compile(net, backend="aot_eager")
        update(run, optimizer, batch)
    assert [batch.warmup for batch in recorder.timing.drain()] == [True, False, False, True, False, False]


def test_recompilation_is_warm_up(recorder):
    """A step with a batch of another shape, for which is compiled again, is marked as warm-up."""
    net = Net()
    run = torch.compile(net, backend="eager", dynamic=False)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, (inputs, wanted) in enumerate(loader(6)):
        size = 1 if number == 4 else 2
        update(run, optimizer, (inputs[:size], wanted[:size]))
    assert [batch.warmup for batch in recorder.timing.drain()] == [True, False, False, False, True, False]


def test_dynamo_that_is_reset(recorder):
    """A program that resets dynamo, which forgets its callbacks, has its later compilations marked all the same."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    run = net
    for number, batch in enumerate(loader(7)):
        if number == 2:
            torch._dynamo.reset()
        if number == 5:
            run = torch.compile(net, backend="eager")
        update(run, optimizer, batch)
    assert [batch.warmup for batch in recorder.timing.drain()] == [True, *[False] * 4, True, False]


def test_uninstall_leaves_dynamo():
    """After uninstall nothing of ours is told of compilations."""
    from torch._dynamo.callback import callback_handler

    before = list(callback_handler.start_callbacks)
    install(Recorder())
    assert len(callback_handler.start_callbacks) == len(before) + 1
    uninstall()
    assert callback_handler.start_callbacks == before
