"""A recorder that watches torch for the time of one test."""

from __future__ import annotations

import gc

import pytest

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import install, uninstall


@pytest.fixture
def recorder():
    """Watches torch strictly: a failure of ours fails the test."""
    gc.collect()  # optimizers of the test before would be waited for
    recorder = Recorder()
    install(recorder, strict=True)
    yield recorder
    uninstall()
