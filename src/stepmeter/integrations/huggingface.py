"""Hugging Face's Trainer, from transformers 4.46.1 on, and whatever derives from it: one step an update.

The loop is guarded, the collection of a group's batches is where input is waited for, and the trainer's own events say
where a step begins and ends. No callback is added: the program's list of callbacks stays as it is.
"""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.explicit import is_tracing
from stepmeter.instrumentation.instrumentor import installed
from stepmeter.instrumentation.patch import Patch
from stepmeter.integrations.apart import Apart, begin_apart, set_apart, told
from stepmeter.integrations.huggingface_attempt import Attempt

_attempts: list[Attempt] = []
"""The attempt that owns this process's steps; at most one."""


def switches(module: Any, _recorder: Recorder) -> list[Patch]:
    """The changes to a trainer.

    Args:
        module: `transformers.trainer`.

    Returns:
        One for each method of which the trainer's loop consists, for its two evaluations, and for what skips batches.
    """
    trainer, handler = module.Trainer, module.CallbackHandler
    apart = functools.partial(set_apart, begin_apart)
    return [
        Patch(trainer, "_inner_training_loop", _guarded),
        Patch(trainer, "get_batch_samples", _collecting),
        Patch(trainer, "evaluate", apart),
        Patch(trainer, "predict", apart),
        Patch(handler, "on_step_begin", _beginning),
        Patch(handler, "on_step_end", functools.partial(_ending, "step_ended")),
        Patch(handler, "on_substep_end", functools.partial(_ending, "micro_batch_ended")),
        Patch(module, "skip_first_batches", _skipping),
    ]


def _attempt_of(trainer: Any) -> Attempt | None:
    return next((attempt for attempt in _attempts if attempt.trainer is trainer), None)


def _attempt_of_handler(handler: Any) -> Attempt | None:
    return next((attempt for attempt in _attempts if attempt.trainer.callback_handler is handler), None)


def _guarded(original: Any) -> Any:
    @functools.wraps(original)
    def _inner_training_loop(self: Any, *args: Any, **kwargs: Any) -> Any:
        scope = told("start", _begin, self)
        if scope is None:
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            _attempts[:] = [attempt for attempt in _attempts if attempt is not scope]
            told("end", scope.ends)

    return _inner_training_loop


def _begin(trainer: Any) -> Attempt | Apart | None:
    """Own the steps of this loop; a loop within another's, or within a `trace_step`, owns none."""
    installation = installed()
    if installation is None or not installation.recorder.recording:
        return None
    if _attempts:
        return begin_apart()
    boundaries = installation.boundaries
    if is_tracing() or not (boundaries.owner == get_ident() or boundaries.takes_over()):
        return None
    attempt = Attempt(trainer, installation)
    _attempts.append(attempt)
    return attempt


def _collecting(original: Any) -> Any:
    @functools.wraps(original)
    def get_batch_samples(self: Any, epoch_iterator: Any, *args: Any, **kwargs: Any) -> Any:
        attempt = _attempt_of(self)
        if attempt is None:
            return original(self, epoch_iterator, *args, **kwargs)
        batches = told("collection", attempt.collecting, epoch_iterator)
        if batches is None:  # a group whose fetches are not seen is no step
            attempt.omits, batches = True, epoch_iterator
        result = original(self, batches, *args, **kwargs)
        told("collection", attempt.collected, result)
        return result

    return get_batch_samples


def _beginning(original: Any) -> Any:
    @functools.wraps(original)
    def on_step_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        attempt = told("step", _attempt_of_handler, self)
        if attempt is not None:
            told("step", attempt.step_begins)
        return original(self, *args, **kwargs)

    return on_step_begin


def _ending(event: str, original: Any) -> Any:
    @functools.wraps(original)
    def on_step_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        attempt = told("step", _attempt_of_handler, self)
        if attempt is not None:
            told("step", getattr(attempt, event))
        return result

    return on_step_end


def _skipping(original: Any) -> Any:
    @functools.wraps(original)
    def skip_first_batches(*args: Any, **kwargs: Any) -> Any:
        loader = original(*args, **kwargs)
        if told("resume", _skips, loader) is not False:
            for attempt in _attempts:
                attempt.omits = True
        return loader

    return skip_first_batches


def _skips(loader: Any) -> bool:
    """Whether it skips within its first fetch, as an iterable's does; with a map-style data set the sampler skips."""
    return bool(getattr(loader, "skip_batches", 0))
