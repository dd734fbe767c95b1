"""Trainers, one file each: a framework's loop says where its steps are; no file is imported before its trainer is."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Final

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.patch import Switch, all_on

TRAINERS: Final = {
    "accelerate.data_loader": "stepmeter.integrations.accelerate",
    "transformers.trainer": "stepmeter.integrations.huggingface",
    "lightning.pytorch.trainer.trainer": "stepmeter.integrations.lightning",
    "pytorch_lightning.trainer.trainer": "stepmeter.integrations.lightning",
}
"""By the module whose import brings a trainer, our module; its `switches(module, recorder)` gives the changes."""

_on: dict[str, Sequence[Switch]] = {}
"""By the module whose import brought a trainer, what stands in it."""

_watched: list[Recorder] = []
_hooked: set[str] = set()


def hook_trainers(recorder: Recorder) -> None:
    """Follow each trainer from its import on, at once if it has been imported; never raises.

    Args:
        recorder: Where steps go, and where a failure is reported.
    """
    _watched[:] = [recorder]
    try:
        import wrapt

        for name, ours in TRAINERS.items():
            if name not in _hooked:  # a hook can't be taken back
                _hooked.add(name)
                wrapt.register_post_import_hook(functools.partial(_loaded, ours), name)
            else:
                _follow_again(name, ours)
    except Exception as error:
        recorder.fault("trainer", error)


def unhook_trainers() -> None:
    """Put every attribute of every trainer back to the identical object; harmless when nothing is followed."""
    _watched.clear()
    while _on:
        _, switches = _on.popitem()
        for switch in reversed(switches):
            switch.off()


def _follow_again(name: str, ours: str) -> None:
    module = sys.modules.get(name)
    if module is not None:
        _loaded(ours, module)


def _loaded(ours: str, module: Any) -> None:
    """A trainer has been imported; what we raised here would fail the program's import."""
    recorder = _watched[0] if _watched else None
    if recorder is None or module.__name__ in _on:
        return
    try:
        switches = importlib.import_module(ours).switches(module, recorder)
        all_on(switches)
        _on[module.__name__] = switches
    except Exception as error:
        recorder.fault("trainer", error)
