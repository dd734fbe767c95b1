"""Loops over what Accelerate prepares."""

import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard, SkipDataLoader
from tests.support.huggingface import batches_of, copies, counts, followed, light, of
from tests.support.training import loader, loss_of, model
from torch.utils.data import DataLoader, IterableDataset

from stepmeter.capture.facts import step_facts
from stepmeter.instrumentation.explicit import TimedIterator, trace_step

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture(scope="module", autouse=True)
def _light():
    """One thread for torch, and what is loaded out of the garbage collector's sight."""
    with light():
        yield


@pytest.fixture
def recorder():
    """Follows Accelerate strictly; the CPU passes for the device that batches are copied to."""
    with followed() as recorder:
        yield recorder


def prepared(batches=10, accumulated=1, data=None):
    """An accelerator, a model, its optimizer and a loader, as its `prepare` gives them."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=accumulated)
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    return accelerator, *accelerator.prepare(net, optimizer, loader(batches) if data is None else data)


def train(accelerator, net, optimizer, data):
    """Go through the loader once, as Accelerate's guide has it; gives the losses."""
    losses = []
    for batch in data:
        with accelerator.accumulate(net):
            loss = loss_of(net, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def test_a_fetch_a_batch(recorder):
    """A loader that fetches ahead has one fetch a step all the same: none has two, and the last of an epoch has one."""
    parts = prepared(3)
    for _ in range(2):
        train(*parts)
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(1)] * 6
    assert [(step.microbatches, step.samples) for step in steps] == [(1, 2)] * 6


def test_accumulation(recorder):
    """Ten batches accumulated by four, with the update that the loader's end brings, are steps of 4, 4 and 2."""
    train(*prepared(accumulated=4))

    assert [counts(step) for step in batches_of(recorder)] == [of(4), of(4), of(2)]


def test_copies_within_the_fetch(recorder):
    """What the loader copies to the device is a copy of the step that trains on it, and no input wait."""
    train(*prepared(4))
    steps = batches_of(recorder)

    assert [copies(step) for step in steps] == [(2, 0)] * 4
    for step in steps:
        waits_ns = sum(end - start for phase, start, end, _ in step.regions if not phase)
        assert step_facts(step).phases["input_wait"].cpu_ns < waits_ns


def test_an_evaluation_between(recorder):
    """An evaluation over a prepared loader, after each epoch and in the middle of one, is nobody's step."""
    accelerator, net, optimizer, data = prepared(3)
    held_out = accelerator.prepare(loader(2))

    def evaluate():
        net.eval()
        with torch.no_grad():
            for batch in held_out:
                accelerator.gather_for_metrics(net(batch[0]))
        net.train()

    for _ in range(2):
        for number, batch in enumerate(data):
            accelerator.backward(loss_of(net, batch))
            optimizer.step()
            if number == 1:
                evaluate()
        evaluate()
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(1)] * 6
    assert all(copies(step)[0] == 2 for step in steps)


def test_a_program_that_marks_its_steps(recorder):
    """`trace_step` around the work on a batch takes the fetch before it."""
    accelerator, net, optimizer, data = prepared(3)
    for batch in data:
        with trace_step(net):
            accelerator.backward(loss_of(net, batch))
            optimizer.step()

    assert [counts(step) for step in batches_of(recorder)] == [of(1)] * 3


def test_a_loop_that_is_left(recorder):
    """Leaving a loop before its end and beginning it anew loses no step."""
    accelerator, net, optimizer, data = prepared(4)
    for _ in range(2):
        for number, batch in enumerate(data):
            accelerator.backward(loss_of(net, batch))
            optimizer.step()
            if number == 1:
                break

    assert [counts(step) for step in batches_of(recorder)] == [of(1)] * 4


class Numbers(IterableDataset):
    def __iter__(self):
        for number in range(8):
            yield torch.full((4,), float(number)), torch.zeros(1)


@pytest.mark.parametrize("skipped", [0, 2])
def test_an_iterable_that_is_resumed(recorder, skipped):
    """A stream gives a step a batch, also where its first are skipped: the skipping is the first step's wait."""
    accelerator, net, optimizer, data = prepared(data=DataLoader(Numbers(), batch_size=2))
    train(accelerator, net, optimizer, skip_first_batches(data, skipped) if skipped else data)

    assert [counts(step) for step in batches_of(recorder)] == [of(1)] * (4 - skipped)


@pytest.mark.parametrize("kind", [DataLoaderShard, DataLoaderDispatcher, SkipDataLoader])
def test_every_kind_of_loader(recorder, kind):
    """Each of Accelerate's loaders gives the batches that it gives alone, timed while someone watches."""
    accelerator, net, optimizer, _ = prepared(1)
    data = kind(loader(3).dataset, batch_size=2)
    assert isinstance(iter(data), TimedIterator)
    losses = train(accelerator, net, optimizer, data)

    assert len(losses) == 3
    assert [counts(step) for step in batches_of(recorder)] == [of(1)] * 3


def test_the_iterator_is_otherwise_what_it_was(recorder):
    """What the loader's own generator offers is still there, such as closing it."""
    iterator = iter(prepared(3)[3])
    next(iterator)
    iterator.close()

    assert list(iterator) == []


def test_training_is_bit_identical():
    """Losses are the same with and without us, and nothing is timed once we are gone."""
    alone = train(*prepared(accumulated=4))
    with followed():
        assert train(*prepared(accumulated=4)) == alone
    assert not isinstance(iter(prepared(1)[3]), TimedIterator)
