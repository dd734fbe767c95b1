"""The least that Python can do at the five places: read the clock twice and keep a tuple."""

from __future__ import annotations

from time import monotonic_ns

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter


class Barest:
    """Wraps the same calls as we do, for one module, with no thought of nesting, threads, failures or steps.

    Args:
        module: Whose forward is noted.
    """

    def __init__(self, module):
        self._module = module
        self._handles = []
        self.kept = []

    def on(self):
        """Wrap."""
        keep, fetch, backward = self.kept.append, _BaseDataLoaderIter.__next__, torch.autograd.backward
        call = self._module._call_impl  # noqa: SLF001 - what torch itself calls there
        self._originals = fetch, backward

        def noted(original):
            def wrapper(*args, **kwargs):
                start_ns = monotonic_ns()
                result = original(*args, **kwargs)
                keep((start_ns, monotonic_ns()))
                return result

            return wrapper

        _BaseDataLoaderIter.__next__ = noted(fetch)
        torch.autograd.backward = noted(backward)
        self._module.__dict__["_compiled_call_impl"] = noted(call)
        self._handles = [
            register_optimizer_step_pre_hook(lambda *_: keep(monotonic_ns())),
            register_optimizer_step_post_hook(lambda *_: keep(monotonic_ns())),
        ]

    def off(self):
        """Unwrap."""
        _BaseDataLoaderIter.__next__, torch.autograd.backward = self._originals
        del self._module.__dict__["_compiled_call_impl"]
        for handle in self._handles:
            handle.remove()
        self.kept.clear()
