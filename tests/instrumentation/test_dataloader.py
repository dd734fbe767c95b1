from __future__ import annotations

import os
import time

import pytest
import torch
from tests.support.training import loader, model, seen, update
from torch.utils.data import DataLoader, Dataset

from stepmeter.conventions.phases import PHASES

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}


@pytest.mark.parametrize("persistent", [False, True])
def test_workers(recorder, persistent):
    """With worker processes the parent sees each batch once and the workers record nothing."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    data = loader(4, num_workers=1, persistent_workers=persistent)
    for _epoch in range(2):
        for batch in data:
            update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 8


class SlowToStart(DataLoader):
    def __iter__(self):
        return super().__iter__()

    def _get_iterator(self):
        time.sleep(0.05)
        return super()._get_iterator()


def test_iterator_creation(recorder):
    """Making an iterator belongs to the fetch that needed it."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in SlowToStart(loader(2).dataset, batch_size=2):
        update(net, optimizer, batch)
    seen_batches = recorder.timing.drain()
    wait = [r for r in seen_batches[0].regions if PHASES[r[0]] == "input_wait"]
    assert len(wait) == 1
    assert wait[0][2] - wait[0][1] >= 50_000_000
    assert seen_batches[0].start_ns == wait[0][1]


def test_samples(recorder):
    """Samples are the leading dimension of the batches of a step."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(2, batch_size=3):
        update(net, optimizer, batch)
    batch = recorder.timing.drain()[0]
    assert (batch.microbatches, batch.samples, batch.tokens) == (1, 3, None)


class Text(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return {"input_ids": torch.zeros(10, dtype=torch.long), "attention_mask": torch.arange(10) < 7}


def test_tokens(recorder):
    """Tokens are what the attention mask keeps."""
    table = torch.nn.Embedding(1, 1)
    optimizer = torch.optim.SGD(table.parameters(), 0.1)
    for batch in DataLoader(Text(), batch_size=4):
        table(batch["input_ids"]).sum().backward()
        optimizer.step()
    batch = recorder.timing.drain()[0]
    assert (batch.samples, batch.tokens) == (4, 28)


def test_forked_child_records_nothing(recorder):
    """A forked child that trains publishes nothing and does not disturb its parent."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    batches = list(loader(3))
    child = os.fork()
    if child == 0:
        for batch in batches:
            update(net, optimizer, batch)
        os._exit(len(recorder.timing) + recorder.steps)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for batch in batches:
        update(net, optimizer, batch)
    assert len(seen(recorder)) == 3


def test_user_exception_passes(recorder):
    """An exception of the dataset reaches the program unchanged."""

    class Broken(Text):
        def __getitem__(self, index):
            raise KeyError(index)

    with pytest.raises(KeyError):
        next(iter(DataLoader(Broken())))
