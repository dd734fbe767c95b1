"""Tiny trainings by Hugging Face's Trainer, and what was seen of them."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing of these tests leaves the machine

import gc
import itertools
import tempfile
from contextlib import contextmanager

import torch
import transformers
from torch import nn
from torch.utils.data import Dataset, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.facts import step_facts
from stepmeter.capture.step import Recorder
from stepmeter.conventions.phases import FORWARD, H2D, INPUT_WAIT, PHASES
from stepmeter.instrumentation import transfer
from stepmeter.instrumentation.instrumentor import finish, install, installed, uninstall
from stepmeter.integrations import hook_trainers, unhook_trainers

VERSION = tuple(int(part) for part in transformers.__version__.split(".")[:2])
UPDATES_SHORT_GROUPS = VERSION >= (4, 57)
"""Up to 4.48 at least a shorter last group of an epoch has no update of its own but goes into the next one."""


class Net(nn.Module):
    """A language model of two layers with fixed weights; dropout makes the order of random numbers matter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.drop, self.head = nn.Embedding(16, 8), nn.Dropout(0.1), nn.Linear(8, 16)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.drop(self.embed(input_ids)))
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


def example(index):
    ids = torch.arange(index, index + 6) % 16
    return {"input_ids": ids, "labels": ids}


class Examples(Dataset):
    """So many examples of six tokens; `before` is called with an example's index before it is given out."""

    def __init__(self, count, before=lambda index: None):
        self.count, self.before = count, before

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        self.before(index)
        return example(index)


class Stream(IterableDataset):
    """The same without random access."""

    def __init__(self, count, before=lambda index: None):
        self.count, self.before = count, before

    def __iter__(self):
        for index in range(self.count):
            self.before(index)
            yield example(index)


def arguments(**changes):
    """Two examples a batch, on the CPU, silent, one epoch."""
    defaults = {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": 2,
        "num_train_epochs": 1,
        "use_cpu": True,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
    }
    return TrainingArguments(**(defaults | changes))


def trainer(batches=10, kind=Trainer, callbacks=(), data=None, model=None, eval_dataset=None, **changes):
    """A trainer of so many batches, accumulated by four."""
    return kind(
        model=Net() if model is None else model,
        args=arguments(**({"gradient_accumulation_steps": 4} | changes)),
        train_dataset=Examples(2 * batches) if data is None else data,
        eval_dataset=eval_dataset,
        callbacks=list(callbacks),
    )


class Groups(TrainerCallback):
    """What the trainer itself says: how many micro-batches each update has had."""

    def __init__(self):
        self.sizes, self._size = [], 0

    def on_train_begin(self, args, state, control, **kwargs):
        self._size = 0

    def on_substep_end(self, args, state, control, **kwargs):
        self._size += 1

    def on_step_end(self, args, state, control, **kwargs):
        self.sizes.append(self._size + 1)
        self._size = 0


@contextmanager
def light():
    """One thread for torch, and what is loaded out of the sight of the garbage collector, which finds the roots."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    torch.set_num_threads(threads)


@contextmanager
def followed(strict=True, copies=True):
    """A recorder that follows trainers; the CPU passes for the device that batches are copied to."""
    recorder = Recorder()
    install(recorder, strict=strict)
    hook_trainers(recorder)
    if copies:
        switches = transfer.patches(installed().boundaries, kind="cpu")
        for switch in switches:
            switch.on()
        installed().switches.extend(switches)
    try:
        yield recorder
    finally:
        unhook_trainers()
        uninstall()


def batches_of(recorder):
    """End the program and give the steps that were published; checks what holds for every one."""
    finish(recorder)
    now_ns = monotonic_ns()
    batches = recorder.timing.drain()
    for before, after in itertools.pairwise(batches):
        assert after.step == before.step + 1
        assert before.end_ns <= after.start_ns
    for batch in batches:
        assert all(batch.start_ns <= start <= end <= batch.end_ns for _, start, end, _ in batch.regions)
        assert batch.end_ns <= now_ns
    return batches


def counts(batch):
    """How many regions of each phase a step has, but for copies."""
    return {name: facts.count for name, facts in step_facts(batch).phases.items() if name != H2D}


def copies(batch):
    """How many copies a step has within its fetches, and how many outside of them before its first forward."""
    of_phase = {
        phase: [region for region in batch.regions if PHASES[region[0]] == phase]
        for phase in (H2D, INPUT_WAIT, FORWARD)
    }
    first_ns = of_phase[FORWARD][0][1]
    before = [region for region in of_phase[H2D] if region[1] < first_ns]
    within = [copy for copy in before if any(wait[1] <= copy[1] <= wait[2] for wait in of_phase[INPUT_WAIT])]
    return len(within), len(before) - len(within)


def of(size, **changes):
    """What a step of so many micro-batches has: a fetch, a forward and a backward each, and one update."""
    whole = {"input_wait": size, "forward": size, "backward": size, "optimizer": 1} | changes
    return {name: count for name, count in whole.items() if count}


def trained(made):
    """The trained parameters and the losses that were logged, to compare bit by bit."""
    losses = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    return losses, [parameter.detach().clone() for parameter in made.model.parameters()]


def equal(one, other):
    """Whether two trainings gave bit-identical results."""
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))
