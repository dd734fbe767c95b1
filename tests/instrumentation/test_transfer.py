from __future__ import annotations

import pickle

import pytest
import torch
from tests.support.training import loader, loss_of, model, seen, update
from torch import nn

from stepmeter.instrumentation import transfer
from stepmeter.instrumentation.instrumentor import installed

STEP = {"input_wait": 1, "h2d": 1, "forward": 1, "backward": 1, "optimizer": 1}


@pytest.fixture
def recorder(recorder):
    """Takes torch's meta device for the one to which batches are copied; it is there on every build."""
    switches = transfer.patches(installed().boundaries, kind="meta")
    for switch in switches:
        switch.on()
    installed().switches.extend(switches)
    return recorder


def test_batches_are_copied(recorder, net, optimizer):
    """The copy of a batch to the device is one region of its step, a call that stays on the host is none."""
    for batch in loader(3):
        batch[0].to(device="meta", non_blocking=True)
        batch[0].to(torch.float64).to("cpu")
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3


@pytest.mark.parametrize("target", ["meta", torch.device("meta"), torch.empty(0, device="meta")])
def test_ways_to_name_the_device(recorder, net, optimizer, target):
    """A device may be named by text, by device and by another tensor."""
    for batch in loader(2):
        batch[0].to(target)
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 2


def test_copies_of_an_evaluation(recorder, net, optimizer):
    """Copies for an evaluation belong to no step."""
    for batch in loader(2):
        batch[0].to("meta")
        update(net, optimizer, batch)
        with torch.no_grad():
            for other in loader(2):
                other[0].to("meta")
                loss_of(net, other)
    assert seen(recorder) == [STEP] * 2


def test_copy_after_the_update(recorder, net, optimizer):
    """A copy between the update and the next fetch, such as a metric's, belongs to the step that made it."""
    for batch in loader(3):
        update(net, optimizer, batch)
        batch[0].to("meta")
    assert seen(recorder) == [STEP] * 3


def test_copies_without_loader(recorder, net, optimizer):
    """Without a loader a step opens with its copy; what a program copies before its first step is not the step's."""
    batches = list(loader(3))
    batches[0][0].to("meta")
    for batch in batches:
        batch[0].to("meta")
        update(net, optimizer, batch)
    assert [step.get("h2d", 0) for step in seen(recorder)] == [0, 1, 1]


def test_label_copied_after_forward(recorder, net, optimizer):
    """A copy between forward and backward belongs to the step in progress."""
    for inputs, wanted in loader(2):
        result = net(inputs)
        wanted.to("meta")
        nn.functional.mse_loss(result, wanted).backward()
        optimizer.step()
    assert seen(recorder) == [STEP] * 2


def test_models_are_no_batches(recorder):
    """Moving a model to the device is no copy of a batch."""
    net = model()
    net.to("meta")
    optimizer = torch.optim.SGD(model().parameters(), 0.1)
    assert optimizer is not None
    assert installed().boundaries._undecided.waiting == []


def test_lazy_modules_work(recorder):
    """A module whose parameters have no shape yet can still be moved and initialised."""
    net = nn.Sequential(nn.LazyLinear(3), nn.LazyLinear(1)).to("cpu", torch.float64)
    assert net(torch.zeros(2, 4, dtype=torch.float64)).shape == (2, 1)


def test_lazy_module_is_moved(recorder):
    """A module whose parameters have no shape yet can be moved to the device."""
    assert nn.LazyLinear(3).to("meta").weight.device.type == "meta"


class Marked(torch.Tensor):
    pass


def test_tensor_subclasses_keep_their_class(recorder):
    """A tensor of a class of the program's own is copied as before, and pickles."""
    marked = torch.zeros(2).as_subclass(Marked)
    assert type(marked.to("meta")) is Marked
    assert type(pickle.loads(pickle.dumps(marked))) is Marked  # noqa: S301 - what we have just pickled


def test_compiled_copies(recorder):
    """A copy inside a compiled function stays inside its one graph."""
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(lambda tensor: tensor.to(torch.float64).to("cpu") + 1, backend=backend, fullgraph=True)
    assert compiled(torch.zeros(2)).dtype == torch.float64
    assert len(graphs) == 1
    torch._dynamo.reset()
