"""Ways in which programs get their batches, and the steps that come of them."""

from __future__ import annotations

import itertools
import queue
import threading

import torch
from tests.support.training import loader, seen, update
from torch.utils.data import DataLoader, IterableDataset

from stepmeter.instrumentation.explicit import wrap_loader

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}
NO_INPUT = {"forward": 1, "backward": 1, "optimizer": 1}


class Stream(IterableDataset):
    def __iter__(self):
        for number in range(8):
            yield torch.full((4,), float(number)), torch.zeros(1)


def test_stream_of_persistent_workers(recorder, net, optimizer):
    """A stream that persistent workers read gives a step a batch in every epoch, and the workers record nothing."""
    data = DataLoader(Stream(), batch_size=2, num_workers=2, persistent_workers=True)
    for _epoch in range(2):
        for batch in data:
            update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 16


class FetchAhead:
    """Holds one batch ready, as prefetchers onto a device do."""

    def __init__(self, data):
        self.data = iter(data)
        self.ready = next(self.data)

    def __iter__(self):
        while self.ready is not None:
            batch, self.ready = self.ready, next(self.data, None)
            yield batch


def test_batch_fetched_ahead(recorder, net, optimizer):
    """With a batch fetched ahead each update is a step, and the wait is the step's in which the loop waited."""
    for batch in FetchAhead(loader(4)):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP | {"input_wait": 2}, STEP, STEP, NO_INPUT]


class OnAThread:
    """Reads a loader on a thread of its own."""

    def __init__(self, data):
        self.data = data

    def __iter__(self):
        batches = queue.Queue(2)
        reader = threading.Thread(target=lambda: [batches.put(batch) for batch in [*self.data, None]])
        reader.start()
        while (batch := batches.get()) is not None:
            yield batch
        reader.join()

    def __len__(self):
        return len(self.data)


def test_prefetching_thread(recorder, net, optimizer):
    """What a thread reads ahead is nobody's wait: steps are found by their updates, and have no input."""
    for batch in OnAThread(loader(4)):
        update(net, optimizer, batch)
    assert seen(recorder) == [NO_INPUT] * 4


def test_prefetching_thread_that_is_wrapped(recorder, net, optimizer):
    """Wrapped, what the loop still waits for such a thread is its input, once a batch."""
    data = wrap_loader(OnAThread(loader(4)))
    for batch in data:
        update(net, optimizer, batch)
    assert len(data) == 4
    assert seen(recorder) == [STEP] * 4


class Loader2:
    """A loader that is no torch loader: with epochs, a state, and an iterator that has a state too."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def state_dict(self):
        return {"epoch": self.epoch}

    def __iter__(self):
        return Iterator2(loader(3))


class Iterator2:
    def __init__(self, data):
        self.batches = iter(list(data))
        self.position = 0

    def __iter__(self):
        return self

    def __next__(self):
        batch = next(self.batches)
        self.position += 1
        return batch


def test_loader_of_another_kind(recorder, net, optimizer):
    """Any loader can be wrapped: it and its iterator keep their own methods and attributes, in every epoch."""
    data = wrap_loader(Loader2())
    for epoch in range(2):
        data.set_epoch(epoch)
        batches = iter(data)
        for number, batch in enumerate(batches, start=1):
            assert batches.position == number
            update(net, optimizer, batch)
    assert data.state_dict() == {"epoch": 1}
    assert seen(recorder) == [STEP] * 6


def test_loop_that_begins_its_loader_again(recorder, net, optimizer):
    """A loop over steps, which makes a new iterator whenever the old one has ended, gives a step an update."""
    data = loader(3)
    batches = iter(data)
    for _ in range(7):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(data)
            batch = next(batches)
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 7


def test_cycle(recorder, net, optimizer):
    """`itertools.cycle` keeps its batches: from the second round on steps have no input, and each update is one."""
    for batch in itertools.islice(itertools.cycle(loader(3)), 7):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3 + [NO_INPUT] * 4


def test_loaders_read_together(recorder, net, optimizer):
    """Two loaders read together for one update, of which one is longer, are one step of two fetches."""
    for (inputs, _), (_, wanted) in zip(loader(3), loader(5), strict=False):
        update(net, optimizer, (inputs, wanted))
    assert seen(recorder) == [STEP | {"input_wait": 2}] * 3


def test_loaders_read_in_any_order(recorder, net, optimizer):
    """Several tasks, each with its loader, on one optimizer: each update is a step, whichever loader comes next."""

    def batches():
        yield from loader(4)

    loaders = {"a": batches(), "b": batches()}
    for name in "aabbabba":
        update(net, optimizer, next(loaders[name]))
    assert seen(recorder) == [STEP] * 8


def test_loaders_one_after_the_other(recorder, net, optimizer):
    """Loaders chained to one, such as stages of a curriculum, give a step a batch."""
    for batch in itertools.chain(loader(2), loader(3), wrap_loader(list(loader(2)))):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 7


def test_accumulation_over_a_stream(recorder, net, optimizer):
    """Micro-batches of a stream accumulated by three are steps of three, and the unfinished last group is none."""
    for number, (inputs, wanted) in enumerate(DataLoader(Stream(), batch_size=1), start=1):
        torch.nn.functional.mse_loss(net(inputs), wanted).backward()
        if number % 3 == 0:
            optimizer.step()
            optimizer.zero_grad()
    assert seen(recorder) == [{"input_wait": 3, "forward": 3, "backward": 3, "optimizer": 1}] * 2
