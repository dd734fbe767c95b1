"""Small trainings, and what a recorder saw of them."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.facts import step_facts
from stepmeter.instrumentation.instrumentor import finish


def model(features: int = 4) -> nn.Sequential:
    """Make a model of two layers with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 1))


class Net(nn.Module):
    """Torch's own containers are not traced as frames of their own, a user's class is."""

    def __init__(self):
        super().__init__()
        self.body = model()

    def forward(self, inputs):
        return self.body(inputs)


def loader(batches: int = 5, batch_size: int = 2, **options) -> DataLoader:
    """Make a loader of so many batches."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(batches * batch_size, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=batch_size, **options)


def loss_of(net, batch) -> torch.Tensor:
    """Run a model on a batch and compare."""
    return nn.functional.mse_loss(net(batch[0]), batch[1])


def update(net, optimizer, batch) -> float:
    """Make one update on one batch."""
    optimizer.zero_grad()
    loss = loss_of(net, batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def seen(recorder) -> list[dict[str, int]]:
    """End the program and return, for each step, how many regions of each phase it has."""
    finish(recorder)
    now_ns = monotonic_ns()
    batches = recorder.timing.drain()
    assert [batch.step for batch in batches] == list(range(batches[0].step, batches[0].step + len(batches)))
    for before, after in pairwise(batches):
        assert before.end_ns <= after.start_ns
    for batch in batches:
        assert all(batch.start_ns <= start <= end <= batch.end_ns for _, start, end, _ in batch.regions)
        assert batch.end_ns <= now_ns
    return [{name: facts.count for name, facts in step_facts(batch).phases.items()} for batch in batches]
