"""Tiny Lightning trainings, for either package."""

from __future__ import annotations

import gc
import importlib
import os
import warnings
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import install, uninstall
from stepmeter.integrations import hook_trainers, unhook_trainers


def package(name):
    """Import a package; its own imports warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(name)


class Stream(IterableDataset):
    """So many samples, of which nobody knows how many they are."""

    def __init__(self, samples):
        self.samples = samples

    def __iter__(self):
        for number in range(self.samples):
            yield torch.full((4,), float(number)), torch.zeros(1)


def stream(batches):
    """Make a loader without a length."""
    return DataLoader(Stream(2 * batches), batch_size=2)


def loader(batches, **options):
    """Make a loader of so many batches of two samples."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2 * batches, 4, generator=generator)
    return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), **{"batch_size": 2} | options)


def module_of(pl):
    """Make the class of a module of one child, which trains, validates, tests and predicts."""

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 1))
            self.losses = []

        def loss(self, batch):
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def training_step(self, batch, batch_idx):
            loss = self.loss(batch)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, batch_idx):
            self.log("validation", self.loss(batch))

        def test_step(self, batch, batch_idx):
            self.log("test", self.loss(batch))

        def predict_step(self, batch, batch_idx):
            return self.net(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    return Module


def manual_module_of(pl):
    """Make the class of a module that makes two updates on each batch itself."""

    class Manual(module_of(pl)):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch, batch_idx):
            optimizer = self.optimizers()
            for _ in range(2):
                optimizer.zero_grad()
                self.manual_backward(super().training_step(batch, batch_idx))
                optimizer.step()

    return Manual


def trainer_of(pl, tmp_path, **options):
    """Make a trainer on the CPU that prints and writes nothing."""
    quiet = {
        "accelerator": "cpu",
        "max_epochs": 1,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
        "default_root_dir": tmp_path,
    }
    return pl.Trainer(**quiet | options)


PACKAGES = os.environ.get("STEPMETER_TEST_LIGHTNING", "lightning.pytorch pytorch_lightning").split()


@contextmanager
def light():
    """Import the packages and take what they bring out of the garbage collector's sight."""
    for name in PACKAGES:
        package(name)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def followed(*, strict=True):
    """Watch torch and trainers."""
    gc.collect()  # optimizers of the test before would be waited for
    recorder = Recorder()
    install(recorder, strict=strict)
    hook_trainers(recorder)
    try:
        yield recorder
    finally:
        unhook_trainers()
        uninstall()


class Fits:
    """Trains modules of a package; gives the module and its trainer."""

    def __init__(self, pl, directory):
        self.pl, self.directory = pl, directory
        self.module = module_of(pl)

    def trainer(self, **options):
        return trainer_of(self.pl, self.directory, **options)

    def __call__(self, data, module=None, held_out=None, **options):
        module = self.module() if module is None else module
        trainer = self.trainer(**options)
        trainer.fit(module, data, held_out)
        return module, trainer
