"""Lightning's Trainer, `lightning` and `pytorch_lightning` from 2.0 on: one step an accumulation group or manual batch.

A callback is attached once the module's own callbacks are there, and taken away again; it stands before checkpoints.
Lightning 1 has no such loops: there the rule for plain loops holds.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from threading import get_ident
from typing import Any

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.compiled import skip_frames
from stepmeter.instrumentation.dataloader import MADE
from stepmeter.instrumentation.explicit import is_tracing
from stepmeter.instrumentation.instrumentor import Installation, installed
from stepmeter.instrumentation.patch import Patch
from stepmeter.instrumentation.undecided import new_loader
from stepmeter.integrations.apart import Apart, begin_apart, set_apart, told
from stepmeter.integrations.lightning_fit import Evaluation, Fit

_fits: list[Fit] = []
"""The fit that owns this process's steps; at most one."""

_ITEM = "_stepmeter_item"


def switches(module: Any, _recorder: Recorder) -> list[Patch]:
    """The changes to a trainer.

    Args:
        module: `lightning.pytorch.trainer.trainer` or `pytorch_lightning.trainer.trainer`.

    Returns:
        The guard around a run, the attachment of our callback, the two loops that do not train, the training loader;
        none for Lightning 1 and where torch is not watched.
    """
    package = module.__name__.removesuffix(".trainer.trainer")
    loaders = sys.modules.get(f"{package}.utilities.combined_loader")
    installation = installed()
    if loaders is None or installation is None:
        return []
    evaluation = sys.modules[f"{package}.loops.evaluation_loop"]
    prediction = sys.modules[f"{package}.loops.prediction_loop"]
    connector = sys.modules[f"{package}.trainer.connectors.callback_connector"]
    apart = functools.partial(set_apart, _begin_evaluation)
    return [
        Patch(module.Trainer, "_run", _guarded),
        Patch(connector._CallbackConnector, "_attach_model_callbacks", functools.partial(_attaching, package)),  # noqa: SLF001 - no public way
        Patch(evaluation._EvaluationLoop, "run", apart),  # noqa: SLF001 - likewise
        Patch(prediction._PredictionLoop, "run", apart),  # noqa: SLF001 - likewise
        Patch(loaders.CombinedLoader, "__iter__", _timed_iter),
        Patch(loaders.CombinedLoader, "__next__", functools.partial(_timed_next, installation)),
    ]


# ── the run ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _guarded(original: Any) -> Any:
    @functools.wraps(original)
    def _run(self: Any, *args: Any, **kwargs: Any) -> Any:
        fit = told("start", _begin, self)
        if fit is None:
            return original(self, *args, **kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            _fits[:] = [other for other in _fits if other is not fit]
            told("end", _end, fit)

    return _run


def _begin(trainer: Any) -> Fit | Evaluation | None:
    """Own the steps of a fit; one within another's, or within a `trace_step`, owns none."""
    installation = installed()
    if trainer.state.fn != "fit" or installation is None or not installation.recorder.recording:
        return None
    if _fits:
        return _fits[0].evaluation()
    boundaries = installation.boundaries
    if is_tracing() or not (boundaries.owner == get_ident() or boundaries.takes_over()):
        return None
    fit = Fit(trainer, installation)
    _fits.append(fit)
    return fit


def _end(fit: Fit | Evaluation) -> None:
    if isinstance(fit, Fit):
        callbacks = fit.trainer.callbacks
        callbacks[:] = [callback for callback in callbacks if callback is not fit.callback]
    fit.ends()


def _begin_evaluation() -> Evaluation | Apart | None:
    return _fits[0].evaluation() if _fits else begin_apart()


# ── input ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _training() -> Fit | None:
    """The fit whose training loader is read on this thread."""
    fit = _fits[0] if _fits else None
    return fit if fit is not None and fit.trains_here else None


def _timed_iter(original: Any) -> Any:
    number = new_loader()  # a fit reads one loader

    @functools.wraps(original)
    def __iter__(self: Any) -> Any:  # noqa: N807 - it takes that method's place
        fit = _training()
        if fit is None:
            return original(self)
        told("iter", fit.iterator_made)
        start_ns = monotonic_ns()
        iterator = original(self)
        self.__dict__[MADE] = (number, monotonic_ns() - start_ns)
        return iterator

    return __iter__


def _timed_next(installation: Installation, original: Any) -> Any:
    def fetch(self: Any) -> Any:
        item = self.__dict__[_ITEM] = original(self)
        # since 2.1 a batch comes with its index and its loader's
        return item[0] if isinstance(item, tuple) and len(item) == len(("batch", "index", "loader")) else item

    timed = installation.timed_next(fetch)

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807 - it takes that method's place
        fit = _training()
        if fit is None:
            return original(self)
        told("fetch", fit.fetch_begins)
        try:
            timed(self)
            return self.__dict__.pop(_ITEM)
        finally:
            told("fetch", fit.fetch_ended)

    return __next__


# ── the callback ────────────────────────────────────────────────────────────────────────────────────────────────────


class Steps:
    """What our callback does; a copy of it does nothing.

    Args:
        package: The package whose callback it is.
        fit: Whom it tells.
    """

    def __init__(self, package: str, fit: Fit | None = None) -> None:
        self._package = package
        self._fit = fit

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return _callback, (self._package,)

    def on_train_start(self, _trainer: Any, pl_module: Any) -> None:
        """Checkpoints are restored, other callbacks are set up, and the sanity check is over."""
        if self._fit is not None:
            told("start", self._fit.training_begins, pl_module, functools.partial(_arming, self._fit))

    def on_train_batch_start(self, *_: Any) -> None:
        """The batch is on its device."""
        if self._fit is not None:
            told("batch", self._fit.batch_begins)

    def on_before_optimizer_step(self, *_: Any) -> None:
        """The closure has run."""
        if self._fit is not None:
            told("update", self._fit.step.update_begins)

    def on_train_batch_end(self, *_: Any) -> None:
        """The batch has been trained."""
        if self._fit is not None:
            told("batch", self._fit.batch_ends)

    def teardown(self, *_: Any, **__: Any) -> None:
        """The fit is over."""
        if self._fit is not None:
            told("teardown", self._fit.release)


def _callback(package: str, fit: Fit | None = None) -> Any:
    """A callback of a package; without a fit it does nothing."""
    base = sys.modules[f"{package}.callbacks"].Callback
    kind: Any = type("StepmeterCallback", (Steps, base), {"__module__": __name__, "__doc__": Steps.__doc__})
    return kind(package, fit)


def _attaching(package: str, original: Any) -> Any:
    @functools.wraps(original)
    def _attach_model_callbacks(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        told("attachment", _attach, package, self.trainer)
        return result

    return _attach_model_callbacks


def _attach(package: str, trainer: Any) -> None:
    """Stand behind the program's callbacks and before those that write checkpoints."""
    checkpoint = sys.modules[f"{package}.callbacks"].Checkpoint
    for fit in _fits:
        if fit.trainer is trainer and fit.callback is None:
            fit.callback = _callback(package, fit)
            callbacks = trainer.callbacks
            index = next(
                (i for i, callback in enumerate(callbacks) if isinstance(callback, checkpoint)), len(callbacks)
            )
            callbacks.insert(index, fit.callback)


def _arming(fit: Fit, module: Any) -> Patch | None:
    """What tells a fit of each `training_step` of a module.

    It stands in the class, so that copies and pickles of the module do not carry it; in the module only where the
    module has a `training_step` of its own, as a compiled one has.
    """
    name = "training_step"
    if name in vars(module):
        return Patch(module, name, functools.partial(_armed, fit, None))
    owner = next((kind for kind in type(module).__mro__ if name in vars(kind)), None)
    if owner is None or not inspect.isfunction(vars(owner)[name]):
        return None
    return Patch(owner, name, functools.partial(_armed, fit, module))


def _armed(fit: Fit, module: Any, original: Any) -> Any:
    @functools.wraps(original)
    def training_step(*args: Any, **kwargs: Any) -> Any:
        if module is not None and args[0] is not module:
            return original(*args, **kwargs)
        told("training_step", fit.step.begins)
        try:
            return original(*args, **kwargs)
        finally:
            told("training_step", fit.step.ends)

    # Lightning looks through one decorator for the parameters, and the program may have one of its own
    training_step.__wrapped__ = getattr(original, "__wrapped__", original)
    skip_frames([training_step])
    return training_step
