"""How long backward waits for other ranks, by DDP's own clock.

DDP times its backward on some iterations (the first ten, then every hundredth; on a GPU with events of its own) and
keeps the times. Reading them costs 16 µs and never waits for a device; we read them now and then.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

from stepmeter.capture.step import Recorder

_FROM_STEP: Final = 4
_FIRST_STEPS: Final = 12
_EVERY_STEPS: Final = 100
"""DDP measures its first ten iterations and every hundredth, and says so in the next."""


class BackwardWait:
    """Reads what one DDP model has measured, and publishes it with the step in which it is read.

    Args:
        recorder: Where it goes.
    """

    __slots__ = ("_model", "_recorder", "_sampled")

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._model: weakref.ref[torch.nn.Module] | None = None
        self._sampled: Any = None

    def scanned(self, modules: Iterable[torch.nn.Module]) -> None:
        """The modules above optimized parameters were found.

        Args:
            modules: Those modules; with several DDP models, as in a GAN, nothing is read: their waits can't be added.
        """
        models = [module for module in modules if isinstance(module, DistributedDataParallel)]
        self._model = weakref.ref(models[0]) if len(models) == 1 else None

    def step_closed(self) -> None:
        """A step is about to be published; reads at the first steps but the very first two, and then seldom.

        The first exchanges set connections up and build buckets anew.
        """
        step = self._recorder.steps + 1
        if self._model is None or step < _FROM_STEP or (step > _FIRST_STEPS and step % _EVERY_STEPS != 1):
            return
        model: Any = self._model()
        if model is None:
            return
        measured: Mapping[str, Any] = model.logger._get_ddp_logging_data().ints_map  # noqa: SLF001
        iteration = measured.get("iteration")
        wait_ns = _wait_ns(measured)
        if wait_ns is not None and iteration != self._sampled:
            self._sampled = iteration
            self._recorder.waits.put((step, wait_ns))


def _wait_ns(measured: Mapping[str, int]) -> int | None:
    """From the rank's own gradients being ready to the end of their exchange; None when nothing was exchanged."""
    exchange_ns = measured.get("backward_comm_time", 0)
    if exchange_ns <= 0:
        return None
    return max(0, exchange_ns - measured.get("backward_compute_comm_overlap_time", 0))
