"""Programs as people write them, and what is seen of them."""

from __future__ import annotations

import gc
import textwrap
import threading

import pytest
import torch
from tests.support.training import loader, loss_of, model, seen, update
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}


def sgd(net, rate=0.1):
    return torch.optim.SGD(net.parameters(), rate)


def test_two_optimizers_over_two_loaders(recorder):
    """Two models that train on a loader each, in turn, make one step of a round."""
    nets = [model(), model()]
    optimizers = [sgd(net) for net in nets]
    loaders = [iter(loader(4)) for _ in nets]
    for _ in range(4):
        for net, optimizer, data in zip(nets, optimizers, loaders, strict=True):
            update(net, optimizer, next(data))
    assert seen(recorder) == [{"input_wait": 2, "forward": 2, "backward": 2, "optimizer": 2}] * 4


@pytest.mark.parametrize("with_loader", [True, False])
def test_updates_within_backward(recorder, with_loader):
    """Optimizers that step as gradients come, one a parameter, make a step a batch; their time is backward's."""
    net = model()
    for parameter in net.parameters():
        optimizer = torch.optim.SGD([parameter], 0.1)

        def apply(changed, optimizer=optimizer):
            optimizer.step()
            changed.grad = None

        parameter.register_post_accumulate_grad_hook(apply)
    for inputs, _ in loader(4) if with_loader else [(torch.randn(2, 4), None)] * 4:
        net(inputs).sum().backward()
    expected = {"input_wait": 1, "forward": 1, "backward": 1} if with_loader else {"forward": 1, "backward": 1}
    assert seen(recorder) == [expected] * 4


def test_each_step_in_another_thread(recorder):
    """A loop that hands each of its batches to a thread of a pool has a step a batch."""
    net = model()
    optimizer = sgd(net)
    for batch in loader(6):
        thread = threading.Thread(target=update, args=(net, optimizer, batch))
        thread.start()
        thread.join()
    steps = seen(recorder)
    assert [{**step, "input_wait": 1} for step in steps] == [STEP] * 6  # the loader's thread is no longer theirs


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(6):
            yield torch.full((4,), float(number)), torch.zeros(1)


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"batch_size": 2, "num_workers": 1}])
def test_iterable_dataset(recorder, options):
    """A stream without a length, batched by the loader or not, gives a step a batch."""
    net = model()
    optimizer = sgd(net)
    count = 0
    for batch in DataLoader(Stream(), **options):
        update(net, optimizer, batch)
        count += 1
    assert seen(recorder) == [STEP] * count


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(recorder, reentrant):
    """What backward computes again is backward, for both kinds of checkpointing."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, inputs):
            return self.head(checkpoint(self.body, self.first(inputs), use_reentrant=reentrant))

    net = Net()
    optimizer = sgd(net)
    for batch in loader(3):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3


def test_model_called_several_times(recorder):
    """Each call of the model within a step is a forward of it."""
    net = model()
    optimizer = sgd(net)
    for inputs, wanted in loader(3):
        optimizer.zero_grad()
        total = sum(nn.functional.mse_loss(net(part), wanted[:1]) for part in inputs.split(1))
        total.backward()
        optimizer.step()
    assert seen(recorder) == [STEP | {"forward": 2}] * 3


def test_gradient_penalty(recorder):
    """A second derivative through `autograd.grad` inside a step makes no step and no backward of its own."""
    net = model()
    optimizer = sgd(net)
    for inputs, wanted in loader(3):
        inputs.requires_grad_()
        result = net(inputs)
        (slope,) = torch.autograd.grad(result.sum(), inputs, create_graph=True)
        (nn.functional.mse_loss(result, wanted) + slope.square().sum()).backward()
        optimizer.step()
    assert seen(recorder) == [STEP] * 3


def test_teacher(recorder):
    """A frozen teacher that runs in each step is part of the residual."""
    net, teacher = model(), model().eval()
    optimizer = sgd(net)
    for inputs, _ in loader(3):
        with torch.no_grad():
            wanted = teacher(inputs)
        nn.functional.mse_loss(net(inputs), wanted).backward()
        optimizer.step()
    assert seen(recorder) == [STEP] * 3


def test_pseudo_labels(recorder):
    """A model that labels its own batch in evaluation mode keeps that batch as the step's input."""
    net = model()
    optimizer = sgd(net)
    for inputs, _ in loader(3):
        net.eval()
        with torch.no_grad():
            wanted = net(inputs)
        net.train()
        nn.functional.mse_loss(net(inputs), wanted).backward()
        optimizer.step()
    assert seen(recorder) == [STEP] * 3


def test_evaluation_between_fetch_and_use(recorder):
    """An evaluation before a fetched batch is used takes neither the batch nor time from its step."""
    net = model()
    optimizer = sgd(net)
    held_out = loader(2)
    for number, batch in enumerate(loader(3)):
        if number == 1:
            net.eval()
            with torch.no_grad():
                for other in held_out:
                    loss_of(net, other)
            net.train()
        update(net, optimizer, batch)
    batches = recorder.timing.drain()
    for batch in batches:
        recorder.timing.put(batch)
    assert [batch.away_ns > 0 for batch in batches] == [False, True, False]
    assert seen(recorder) == [STEP] * 3


def test_two_trainings(recorder):
    """A second training in one process continues the count, is found anew and warms up anew."""

    def training(batches):
        net = model()
        optimizer = torch.optim.AdamW(net.parameters())
        for _epoch in range(2):
            for batch in loader(batches):
                update(net, optimizer, batch)

    training(3)
    gc.collect()
    training(2)
    batches = recorder.timing.drain()
    assert [batch.step for batch in batches] == list(range(1, 11))
    assert [batch.warmup for batch in batches] == [True, *[False] * 5, True, *[False] * 3]


def test_fine_tuning_adds_parameters(recorder):
    """Parameters added to the optimizer in the middle, with a new head, keep each batch one step."""
    body, head = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizer = sgd(head)
    for number, (inputs, wanted) in enumerate(loader(4)):
        if number == 2:
            optimizer.add_param_group({"params": body.parameters()})
        nn.functional.mse_loss(head(body(inputs)), wanted).backward()
        optimizer.step()
    assert [step["optimizer"] for step in seen(recorder)] == [1] * 4


def test_notebook(recorder):
    """Cells that are run, run again and interrupted give a step an update; a look in between is in the next one."""
    cells = {
        "data": "data = loader(3)",
        "model": "net = model()\noptimizer = torch.optim.SGD(net.parameters(), 0.1)",
        "train": """
            for batch in data:
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(batch[0]), batch[1])
                loss.backward()
                optimizer.step()
        """,
        "interrupted": """
            for number, batch in enumerate(data):
                loss = nn.functional.mse_loss(net(batch[0]), batch[1])
                if number == 1:
                    raise KeyboardInterrupt
                loss.backward()
                optimizer.step()
        """,
        "look": "loss.item(), net(next(iter(data))[0])",
    }
    space = {"torch": torch, "nn": nn, "loader": loader, "model": model}

    def run(name):
        exec(compile(textwrap.dedent(cells[name]), f"<cell {name}>", "exec"), space)  # noqa: S102 - what a notebook does

    for name in ("data", "model", "train", "look", "train", "model", "train"):
        run(name)
    with pytest.raises(KeyboardInterrupt):
        run("interrupted")
    run("train")
    steps = seen(recorder)
    assert len(steps) == 3 + 3 + 3 + 1 + 3
    assert all(step["optimizer"] == 1 for step in steps)
    assert [step["input_wait"] for step in steps] == [1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1]


def test_evaluation_in_a_thread(recorder):
    """An evaluation in another thread, while training pauses, is nobody's step and takes nothing over."""
    import threading

    net, other = model(), model().eval()
    optimizer = sgd(net)

    def evaluate():
        with torch.no_grad():
            for batch in loader(3):
                loss_of(other, batch)

    for batch in loader(3):
        update(net, optimizer, batch)
        thread = threading.Thread(target=evaluate)
        thread.start()
        thread.join()
    assert seen(recorder) == [STEP] * 3
