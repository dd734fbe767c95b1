"""A real loop as small as torch allows, with five regions a step; knows neither us nor a peer."""

from __future__ import annotations

import contextlib
import statistics
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 30
LAYERS = {1: 100, 12: 50, 51: 20}
"""Submodules of the model, and how many rounds of blocks are measured."""


def quiet(costs_us):
    """The mean of the lowest fifth: other programs on the machine add to a block and never take away."""
    lowest = sorted(costs_us)[: max(1, len(costs_us) // 5)]
    return statistics.fmean(lowest)


class Deep(nn.Module):
    """A root above so many small layers."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))

    def forward(self, inputs):
        """Run them one after the other."""
        return self.layers(inputs)


class Loop:
    """A model, two optimizers that share its parameters, and a loader.

    Args:
        layers: Submodules of the model.
    """

    def __init__(self, layers):
        torch.manual_seed(0)
        self.net = Deep(layers)
        weights = [p for p in self.net.parameters() if p.dim() == 2]
        biases = [p for p in self.net.parameters() if p.dim() == 1]
        self.optimizers = [torch.optim.SGD(weights, 1e-6), torch.optim.SGD(biases, 1e-6)]
        self.loader = DataLoader(
            TensorDataset(torch.zeros(BATCHES, 4)), batch_size=1, collate_fn=lambda items: items[0][0][None]
        )

    def train(self, span=contextlib.nullcontext, step=contextlib.nullcontext):
        """Train for one block of `BATCHES` steps; `span` goes around each phase, `step` around all but the fetch."""
        iterator = iter(self.loader)
        while True:
            with span("input_wait"):
                batch = next(iterator, None)
            if batch is None:
                return
            with step():
                with span("forward"):
                    loss = self.net(batch).sum()
                with span("backward"):
                    loss.backward()
                for optimizer in self.optimizers:
                    with span("optimizer"):
                        optimizer.step()

    def cost_us(self, **around):
        """CPU time of this thread per step of one block, in µs."""
        began_ns = time.thread_time_ns()
        self.train(**around)
        return (time.thread_time_ns() - began_ns) / BATCHES / 1e3
