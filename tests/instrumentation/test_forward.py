from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from tests.support.training import Net, loader, loss_of, model, seen, update
from torch import nn

from stepmeter.instrumentation.forward import SLOT

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}


def through_pickle(net):
    return pickle.loads(pickle.dumps(net))  # noqa: S301 - what we have just pickled


def trained(net, batches=3):
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(batches):
        update(net, optimizer, batch)
    return optimizer


def test_only_roots_stay_watched(recorder):
    """After the first step only the outermost module has its slot taken."""
    net = model()
    trained(net)
    assert [SLOT in module.__dict__ for module in net.modules()] == [True, False, False, False]


def test_several_roots(recorder):
    """Encoder and decoder called one after the other are two roots."""
    nets = nn.ModuleList([nn.Linear(4, 3), nn.Linear(3, 1)])
    optimizer = torch.optim.SGD(nets.parameters(), 0.1)
    for inputs, wanted in loader(3):
        nn.functional.mse_loss(nets[1](nets[0](inputs)), wanted).backward()
        optimizer.step()
    assert seen(recorder) == [STEP | {"forward": 2}] * 3


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, through_pickle])
def test_copies_run_their_own_weights(recorder, copied):
    """A copy of a watched model is not watched and computes with its own weights."""
    net = model()
    trained(net)
    other = copied(net)
    if copied is not copy.copy:
        with torch.no_grad():
            other[2].bias.fill_(1_000.0)
        assert other(torch.zeros(1, 4)).item() > 500
        assert net(torch.zeros(1, 4)).item() < 500
    assert getattr(other, SLOT) is None


def test_saved_model_does_not_name_us(recorder):
    """A model saved whole while watched has nothing of ours in it, and loads."""
    net = model()
    trained(net)
    file = io.BytesIO()
    torch.save(net, file)
    assert b"stepmeter" not in file.getvalue()
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)[0].weight, net[0].weight)


def test_model_is_freed(recorder):
    """A watched model is freed when the program lets go of it, without the garbage collector."""
    net = model()
    trained(net)
    recorder.timing.drain()
    gone = weakref.ref(net)
    gc.disable()
    try:
        del net
        assert gone() is None
    finally:
        gc.enable()


def test_copy_that_trains_is_found(recorder):
    """A copy that gets an optimizer of its own becomes a root."""
    net = model()
    trained(net)
    assert seen(recorder) == [STEP] * 3
    trained(copy.deepcopy(net))
    assert seen(recorder) == [STEP] * 3


def test_wrapper_after_optimizer(recorder):
    """A wrapper put around the model after its optimizer was made becomes the root."""

    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, inputs):
            return self.module(inputs)

    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    wrapped = Wrapper(net)
    for batch in loader(3):
        update(wrapped, optimizer, batch)
    assert SLOT in wrapped.__dict__
    assert SLOT not in net.__dict__
    assert seen(recorder) == [STEP] * 3


def test_functional_call(recorder):
    """A call with other parameters through `functional_call` is a forward."""
    net = model()
    weights = {name: parameter.detach().clone().requires_grad_() for name, parameter in net.named_parameters()}
    optimizer = torch.optim.SGD([*weights.values(), *net.parameters()], 0.1)
    for inputs, wanted in loader(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(torch.func.functional_call(net, weights, inputs), wanted).backward()
        optimizer.step()
    assert seen(recorder) == [STEP] * 3


def counting():
    """A torch.compile backend that counts graphs."""
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    return backend, graphs


@pytest.mark.parametrize("when", ["before optimizer", "after optimizer", "in place", "in place while watched"])
def test_compile(recorder, when):
    """A compiled model is one graph, with nothing of ours in it, and its forwards are seen."""
    torch._dynamo.reset()
    backend, graphs = counting()
    net = Net()
    run = net
    if when == "before optimizer":
        run = torch.compile(net, backend=backend, fullgraph=True)
    if when == "in place":
        net.compile(backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    if when == "after optimizer":
        run = torch.compile(net, backend=backend, fullgraph=True)
    for number, batch in enumerate(loader(6)):
        update(run, optimizer, batch)
        if when == "in place while watched" and number == 2:
            net.compile(backend=backend, fullgraph=True)
    steps = seen(recorder)
    assert len(graphs) == 1
    assert len(steps) == 6
    assert sum(step.get("forward", 0) for step in steps) >= 6
    torch._dynamo.reset()


def test_compiled_loss_function(recorder):
    """A model called inside a compiled function stays one graph."""
    torch._dynamo.reset()
    backend, graphs = counting()
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    compiled = torch.compile(loss_of, backend=backend, fullgraph=True)
    for batch in loader(4):
        compiled(net, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert len(graphs) == 1
    assert len(seen(recorder)) == 4
    torch._dynamo.reset()
