"""A recorder that watches torch for the time of one test."""

from __future__ import annotations

import gc

import pytest
import torch
from tests.support.training import model

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import install, uninstall


@pytest.fixture(scope="session", autouse=True)
def _few_objects():
    """Takes torch's own million objects out of the garbage collector's sight, through which roots are looked for."""
    torch._dynamo.reset()  # imports dynamo
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def recorder():
    """Watches torch strictly: a failure of ours fails the test."""
    gc.collect()  # optimizers of the tests before would be waited for,
    gc.freeze()  # those too that other packages keep
    recorder = Recorder()
    install(recorder, strict=True)
    yield recorder
    uninstall()


@pytest.fixture
def net():
    """A model of two layers."""
    return model()


@pytest.fixture
def optimizer(net):
    """Trains that model."""
    return torch.optim.SGD(net.parameters(), 0.1)
