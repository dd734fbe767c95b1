from __future__ import annotations

import contextlib

import pytest
import torch
from tests.support.training import loader, loss_of, model, seen, update
from torch import nn

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}
NO_INPUT = {"forward": 1, "backward": 1, "optimizer": 1}


def test_plain_loop(recorder):
    """Each batch of a plain loop is one step of four regions, over several epochs."""
    net, data = model(), loader(5)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _epoch in range(2):
        for batch in data:
            update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 10


def test_accumulation(recorder):
    """Three micro-batches before one update are one step of three fetches, forwards and backwards."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    for number, batch in enumerate(loader(9), start=1):
        loss_of(net, batch).backward()
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
    assert seen(recorder) == [{"input_wait": 3, "forward": 3, "backward": 3, "optimizer": 1}] * 3


def gan(discriminator, generator, optimizers, batch, *, generator_first):
    real, _ = batch
    noise = torch.ones(2, 4)

    def update_discriminator():
        with torch.no_grad():
            fake = generator(noise)
        (discriminator(fake).mean() - discriminator(real).mean()).backward()
        optimizers[0].step()

    def update_generator():
        (-discriminator(generator(noise)).mean()).backward()
        optimizers[1].step()

    turns = [update_discriminator, update_generator]
    for turn in reversed(turns) if generator_first else turns:
        turn()


@pytest.mark.parametrize("generator_first", [False, True])
def test_gan(recorder, generator_first):
    """Two updates of a GAN between two fetches are one step, whichever comes first, and its fakes no evaluation."""
    discriminator, generator = model(), nn.Linear(4, 4)
    optimizers = [torch.optim.Adam(net.parameters()) for net in (discriminator, generator)]
    for batch in loader(5):
        gan(discriminator, generator, optimizers, batch, generator_first=generator_first)
    assert seen(recorder) == [{"input_wait": 1, "forward": 4, "backward": 2, "optimizer": 2}] * 5


@pytest.mark.parametrize("eval_mode", [True, False])
@pytest.mark.parametrize("grad", ["around loop", "around forward", "on"])
def test_evaluation_between_steps(recorder, eval_mode, grad):
    """Fetches and forwards of an evaluation belong to no step, and end the step before them."""
    if not eval_mode and grad == "on":
        pytest.skip("this is what training looks like")
    net, data, held_out = model(), loader(3), loader(4)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _epoch in range(2):
        net.train()
        for batch in data:
            update(net, optimizer, batch)
        net.train(not eval_mode)
        with torch.set_grad_enabled(grad != "around loop"):
            for batch in held_out:
                with torch.set_grad_enabled(grad == "on"):
                    loss_of(net, batch)
    assert seen(recorder) == [STEP] * 6


def test_evaluation_inside_epoch(recorder):
    """An evaluation in the middle of an epoch ends the step before it at its own first fetch."""
    net, data, held_out = model(), loader(4), loader(2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(data):
        update(net, optimizer, batch)
        if number == 1:
            net.eval()
            for other in held_out:
                with torch.no_grad():
                    loss_of(net, other)
            net.train()
    assert seen(recorder) == [STEP] * 4


def test_validation_before_training(recorder):
    """A sanity check before the first step belongs to no step."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net.eval()
    with torch.no_grad():
        for batch in loader(3):
            loss_of(net, batch)
    net.train()
    for batch in loader(2):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 2


def test_loader_outside_training(recorder):
    """A loader read for statistics before training is charged to no step."""
    net, data = model(), loader(3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    sum(batch[0].sum().item() for batch in data)
    for batch in data:
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3


def test_training_in_evaluation_mode(recorder):
    """A model that trains with frozen statistics, in evaluation mode, is training."""
    net = model().eval()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(3):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3


def test_exception_in_forward(recorder):
    """A batch that fails is discarded; the steps around it are whole."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, (inputs, wanted) in enumerate(loader(5)):
        if number == 2:
            with pytest.raises(RuntimeError, match="shapes"):
                update(net, optimizer, (inputs[:, :3], wanted))
        else:
            update(net, optimizer, (inputs, wanted))
    assert seen(recorder) == [STEP] * 4


def test_exception_in_backward(recorder):
    """A backward that fails is discarded with its batch, and the next one is outermost again."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for number, batch in enumerate(loader(5)):
        if number == 2:
            with pytest.raises(RuntimeError, match="scalar"):
                net(batch[0]).backward()
        else:
            update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 4


class FailsOnce(torch.optim.SGD):
    fail = True

    def step(self, closure=None):
        if self.fail:
            self.fail = False
            raise ArithmeticError("first update")
        return super().step(closure)


@pytest.mark.parametrize("with_loader", [True, False])
def test_exception_in_optimizer(recorder, with_loader):
    """An optimizer that raised does not hide the updates after it."""
    net, batches = model(), loader(4)
    optimizer = FailsOnce(net.parameters(), 0.1)
    for batch in batches if with_loader else list(batches):
        with contextlib.suppress(ArithmeticError):
            update(net, optimizer, batch)
    steps = seen(recorder)
    assert sum(step["optimizer"] for step in steps) == 3
    assert len(steps) == 3


@pytest.mark.parametrize("again", [False, True])
def test_two_loaders_in_turn(recorder, again):
    """Two loaders read one after the other open one step of two fetches, also when one is started again."""
    net, labelled = model(), loader(6)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    unlabelled = loader(3 if again else 6)
    other = iter(unlabelled)
    for batch in labelled:
        try:
            extra = next(other)
        except StopIteration:
            other = iter(unlabelled)
            extra = next(other)
        optimizer.zero_grad()
        (loss_of(net, batch) + loss_of(net, extra)).backward()
        optimizer.step()
    assert seen(recorder) == [{"input_wait": 2, "forward": 2, "backward": 1, "optimizer": 1}] * 6


def test_alternating_loaders(recorder):
    """Updates on batches of two loaders in turn are a step each."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for one, other in zip(loader(3), iter(loader(3)), strict=True):
        update(net, optimizer, one)
        update(net, optimizer, other)
    steps = seen(recorder)
    assert [step.get("input_wait", 0) for step in steps] == [2, 0] * 3
    assert all(step["optimizer"] == 1 for step in steps)


def test_no_loader(recorder):
    """Without a loader, a step ends where its optimizer's last call ended, the first and the last included."""
    net, batches = model(), list(loader(5))
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in batches:
        update(net, optimizer, batch)
    assert seen(recorder) == [NO_INPUT] * 5


def test_optimizers_back_to_back(recorder):
    """Two optimizers stepped one after the other are one step, with and without a loader."""
    net = model()
    optimizers = [torch.optim.AdamW(net[0].parameters()), torch.optim.SGD(net[2].parameters(), 0.1)]

    def both(batch):
        loss_of(net, batch).backward()
        for optimizer in optimizers:
            optimizer.step()

    for batch in loader(3):
        both(batch)
    assert seen(recorder) == [STEP | {"optimizer": 2}] * 3
    for batch in list(loader(3)):
        both(batch)
    assert seen(recorder) == [NO_INPUT | {"optimizer": 2}] * 3


def test_scaler_that_skips(recorder):
    """An update that a scaler skips is a step without an optimizer region."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number, batch in enumerate(loader(5)):
        optimizer.zero_grad()
        loss = loss_of(net, batch) * (float("inf") if number % 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    steps = seen(recorder)
    assert [step.get("optimizer", 0) for step in steps] == [1, 0, 1, 0, 1]
    assert all(step["forward"] == step["backward"] == step["input_wait"] == 1 for step in steps)


@pytest.mark.parametrize("skip", [False, True])
def test_scaler_without_loader(recorder, skip):
    """A scaler's updates separate the steps of a loop without a loader, skipped or not."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for batch in list(loader(4)):
        scaler.scale(loss_of(net, batch) * (float("inf") if skip else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
    assert len(seen(recorder)) == 4


@pytest.mark.parametrize("with_loader", [True, False])
def test_lbfgs(recorder, with_loader):
    """What LBFGS evaluates in its closure is inside its one step, and is counted in its own phase."""
    net = model()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)
    for batch in loader(3) if with_loader else list(loader(3)):

        def closure(batch=batch):
            optimizer.zero_grad()
            loss = loss_of(net, batch)
            loss.backward()
            return loss

        optimizer.step(closure)
    steps = seen(recorder)
    assert len(steps) == 3
    assert all(step["optimizer"] == 1 and step["forward"] == step["backward"] >= 2 for step in steps)


def test_state_initialisation_is_no_step(recorder):
    """An optimizer that steps before any forward or backward makes no step."""
    net = model()
    optimizer = torch.optim.Adam(net.parameters())
    optimizer.step()
    for batch in loader(2):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 2


def test_first_step_is_warmup(recorder):
    """The first step of a process is marked as warm-up, the others are not."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(3):
        update(net, optimizer, batch)
    assert [batch.warmup for batch in recorder.timing.drain()] == [True, False, False]


def test_checkpoint_recomputation(recorder):
    """A forward that backward runs again is not counted again."""
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, inputs):
            return self.head(checkpoint(self.body, inputs, use_reentrant=False))

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(3):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3
