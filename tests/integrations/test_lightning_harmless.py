"""Lightning with and without us: what is put back, what is left alone, and what a failure of ours costs."""

from __future__ import annotations

import contextlib
import copy
import pickle
import sys

import pytest
import torch
from tests.support.allocator import FakeAllocator
from tests.support.device import FakeDevice
from tests.support.failing import fail, note, path_id
from tests.support.lightning import (
    PACKAGES,
    Fits,
    followed,
    light,
    loader,
    manual_module_of,
    module_of,
    package,
    stream,
)
from tests.support.training import seen

from stepmeter.capture.region import Unresolved
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.explicit import TracedStep, is_tracing
from stepmeter.instrumentation.instrumentor import install, installed, uninstall
from stepmeter.instrumentation.memory import PeakMemory
from stepmeter.instrumentation.roots import Roots
from stepmeter.integrations import hook_trainers, lightning, unhook_trainers
from stepmeter.integrations.apart import Apart
from stepmeter.integrations.lightning_fit import Evaluation, Fit
from stepmeter.integrations.lightning_step import TrainingStep
from stepmeter.telemetry.guard import Guard

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own


@pytest.fixture(scope="module", autouse=True)
def _light():
    """Takes what the packages import out of the garbage collector's sight, through which roots are looked for."""
    with light():
        yield


@pytest.fixture(params=PACKAGES)
def pl(request):
    """One of the packages."""
    return package(request.param)


@pytest.fixture
def fit(pl, tmp_path):
    """Trains a module; gives it and its trainer."""
    return Fits(pl, tmp_path)


def attributes(pl):
    """Everything of Lightning that may be replaced."""
    classes = [
        pl.trainer.trainer.Trainer,
        pl.trainer.connectors.callback_connector._CallbackConnector,
        pl.loops.evaluation_loop._EvaluationLoop,
        pl.loops.prediction_loop._PredictionLoop,
        pl.utilities.combined_loader.CombinedLoader,
    ]
    return {(kind, name): value for kind in classes for name, value in vars(kind).items()}


def test_unhooking_restores_identical_objects(pl):
    """After unhooking every attribute is the object that it was, however often it has been hooked."""
    before = attributes(pl)
    recorder = Recorder()
    install(recorder)
    for _ in range(2):
        hook_trainers(recorder)
        hook_trainers(recorder)
        changed = [name for name, value in attributes(pl).items() if value is not before[name]]
        unhook_trainers()
        unhook_trainers()
        assert len(changed) == 6
        assert all(value is before[name] for name, value in attributes(pl).items())
        assert attributes(pl).keys() == before.keys()
    uninstall()


def test_a_lightning_that_has_changed_inside(pl, fit, monkeypatch):
    """Where Lightning lacks what we hold on to, that is reported once, nothing is changed, and it is any loop."""
    before, faults = attributes(pl), []
    monkeypatch.delitem(sys.modules, f"{pl.__name__}.loops.prediction_loop")
    recorder = Recorder()
    recorder.on_fault = lambda kind, error: faults.append((kind, type(error)))
    install(recorder)
    hook_trainers(recorder)
    try:
        assert all(value is before[name] for name, value in attributes(pl).items())
        fit(loader(10), accumulate_grad_batches=4)
        assert [step["forward"] for step in seen(recorder)] == [4, 4, 2]
    finally:
        unhook_trainers()
        uninstall()
    assert faults == [("trainer", KeyError)]


def test_switched_off_during_a_fit(pl, fit):
    """A fit under which we are switched off goes on to its end, and leaves nothing behind."""

    class Ending(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 2:
                unhook_trainers()
                uninstall()

    with followed() as recorder:
        module, trainer = fit(loader(6), callbacks=[Ending()], accumulate_grad_batches=2)
    assert trainer.global_step == 3
    assert recorder.steps == 1
    assert not is_tracing()
    assert vars(module).get("_compiled_call_impl") is None
    assert [type(callback).__name__ for callback in trainer.callbacks] == ["Ending"]


@pytest.mark.parametrize("kind", [module_of, manual_module_of])
def test_training_is_bit_identical(pl, fit, kind):
    """Losses and weights are the same to the bit with and without us."""
    with followed() as recorder:
        watched, _ = fit(loader(6, shuffle=True), kind(pl)(), loader(2), max_epochs=2)
    alone, _ = fit(loader(6, shuffle=True), kind(pl)(), loader(2), max_epochs=2)
    assert recorder.steps == 12
    assert equal(computed(watched), computed(alone))


def test_copied_callback_does_nothing(fit, pl):
    """Copies and pickles of our callback, which a program may make with its own, do nothing."""
    copies = []

    class Copying(pl.Callback):
        def on_train_start(self, trainer, *_):
            copies.extend(copy.deepcopy(trainer.callbacks[1:]))
            copies.extend(pickle.loads(pickle.dumps(trainer.callbacks[1:])))  # noqa: S301 - our own

    with followed() as recorder:
        fit(loader(2), callbacks=[Copying()])
        assert [type(callback).__name__ for callback in copies] == ["StepmeterCallback"] * 2
        fit(loader(2), callbacks=copies)
        assert recorder.steps == 4


def test_memory_is_measured_over_the_group(fit, pl):
    """Peaks are those of all micro-batches of a group; what evaluates or logs between is nobody's."""
    allocator = FakeAllocator()

    class Allocating(module_of(pl)):
        def training_step(self, batch, batch_idx):
            allocator.transient(1000 * (batch_idx + 1))
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            allocator.transient(1_000_000)

    class Logging(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            if batch_idx == 2:
                allocator.transient(500_000)

    with followed() as recorder:
        installed().boundaries.memory = PeakMemory(0, None, allocator.stats, allocator.reset_peaks)
        fit(loader(4), Allocating(), loader(1), accumulate_grad_batches=2, val_check_interval=1, callbacks=[Logging()])
        assert [memory.peak_allocated_bytes for memory in recorder.memory.drain()] == [2000, 4000]


def test_device_times(fit, pl):
    """On a device each region has its pair, the optimizer's without the closure that ran in its step."""
    device = FakeDevice()

    class Working(module_of(pl)):
        def loss(self, batch):
            loss = super().loss(batch)
            device.work(10)
            return loss

        def optimizer_step(self, *args, **kwargs):
            super().optimizer_step(*args, **kwargs)
            device.work(1)

    with followed() as recorder:
        installed().boundaries.timer = device.timer()
        fit(loader(2), Working())
        device.run()
        times = [times for _, times in Unresolved().release(recorder.timing.drain())]
    assert [one.traced_ns for one in times] == [11_000_000] * 2
    assert [sum(one.regions_ns) for one in times] == [0, 0]
    assert [one.lost_pairs for one in times] == [0, 0]


def test_device_time_between_micro_batches(fit, pl):
    """What the device does in a validation in the middle of a group, or in a fit within one, is in no step either."""
    device = FakeDevice()

    class Working(module_of(pl)):
        def training_step(self, batch, batch_idx):
            device.work(10)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch, batch_idx):
            device.work(1000)

    class Nesting(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 2:
                fit(loader(1), Working())

    with followed() as recorder:
        installed().boundaries.timer = device.timer()
        fit(loader(4), Working(), loader(1), accumulate_grad_batches=2, val_check_interval=1, callbacks=[Nesting()])
        device.run()
        times = [times for _, times in Unresolved().release(recorder.timing.drain())]
    assert [one.traced_ns for one in times] == [20_000_000] * 2


# ── failures of ours ────────────────────────────────────────────────────────────────────────────────────────────────

PATHS = [
    *[(Fit, name) for name in ("__init__", "training_begins", "release", "iterator_made", "fetch_begins")],
    *[(Fit, name) for name in ("fetch_ended", "batch_begins", "_open", "batch_ends", "_close", "ends", "evaluation")],
    *[(TrainingStep, name) for name in ("begins", "ends", "update_begins", "tidy", "forget")],
    *[(Evaluation, name) for name in ("__init__", "ends")],
    *[(Apart, name) for name in ("__init__", "ends")],
    *[(lightning, name) for name in ("_begin", "_end", "_attach", "_callback", "_arming", "_begin_evaluation")],
    *[(Boundaries, name) for name in ("hand_over", "give_up", "adopt", "step_begins", "step_ended")],
    *[(TracedStep, name) for name in ("__enter__", "__exit__")],
    *[(Roots, name) for name in ("watch", "unwatch")],
    (Recorder, "complete"),
]


def computed(module):
    """What a training has computed."""
    return module.losses, [parameter.detach().clone() for parameter in module.parameters()]


def equal(one, other):
    """Whether two trainings have computed the same to the bit."""
    return one[0] == other[0] and all(torch.equal(a, b) for a, b in zip(one[1], other[1], strict=True))


class InterruptedFitError(Exception):
    """The program's own."""


def program(fit):
    """Trainings that go through every path of ours: accumulated, by hand, evaluated, and left by an exception."""
    pl, results = fit.pl, []
    module, trainer = fit(loader(6), None, loader(1), accumulate_grad_batches=4, val_check_interval=2)
    results.append(computed(module))
    trainer.validate(module, loader(1), verbose=False)
    module, _ = fit(stream(2), manual_module_of(pl)())
    results.append(computed(module))

    class Failing(module_of(pl)):
        def training_step(self, batch, batch_idx):
            if batch_idx == 1:
                raise InterruptedFitError
            return super().training_step(batch, batch_idx)

    module = Failing()
    with contextlib.suppress(InterruptedFitError):
        fit(loader(2), module)
    results.append(computed(module))
    return results


@pytest.fixture(scope="module")
def fits(tmp_path_factory):
    """Trains with the first of the packages."""
    return Fits(package(PACKAGES[0]), tmp_path_factory.mktemp("fits"))


@pytest.fixture(scope="module")
def expected(fits):
    """What the program computes without us."""
    return program(fits)


def watched(fits):
    """The program, watched: what it computed, and what was lost."""
    guard, faults = Guard(), []
    with followed(strict=False) as recorder:
        recorder.on_fault = lambda kind, error: (faults.append(error), guard.fault(kind, error))
        return program(fits), recorder, guard, faults


def same(results, expected):
    """Whether all trainings have computed the same to the bit."""
    return all(equal(one, other) for one, other in zip(results, expected, strict=True))


def test_nothing_fails_by_itself(fits, expected, monkeypatch):
    """The program goes through each of the paths, computes what it computes alone, and nothing is lost."""
    gone = note(monkeypatch, PATHS)
    results, recorder, guard, _ = watched(fits)
    assert same(results, expected)
    assert guard.losses() == {}
    assert recorder.steps == 2 + 2 + 1
    assert set(PATHS) - gone == set()


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 1_000_000])
@pytest.mark.parametrize("path", PATHS, ids=path_id)
def test_failure_of_ours_is_harmless(fits, expected, monkeypatch, capfd, path, times):
    """A path that raises once or always leaves results bit-identical, is counted, and is said once a kind."""
    fail(monkeypatch, path, times)
    results, recorder, guard, faults = watched(fits)
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("stepmeter: ")]
    assert same(results, expected)
    assert {str(error) for error in faults} == {path[1]}
    assert sum(guard.losses().values()) == len(faults)
    assert len(said) == len(guard.losses())
    if times == 1:
        assert recorder.steps > 0
