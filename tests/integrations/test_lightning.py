"""Lightning's Trainer, from either package: one step an accumulation group or a manual batch."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import time
from unittest import mock

import pytest
import torch
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
from tests.support.training import loader as plain_loader
from tests.support.training import model, seen, update
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

from stepmeter.capture.ending import complete_step_capture
from stepmeter.capture.facts import step_facts
from stepmeter.instrumentation.explicit import trace_step
from stepmeter.integrations import unhook_trainers

# Lightning's own: few workers, no validation loader, and the like
pytestmark = pytest.mark.filterwarnings("ignore")


def step(batches=1, **other):
    """A step of so many micro-batches and one update."""
    return {"input_wait": batches, "forward": batches, "backward": batches, "optimizer": 1} | other


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
def recorder():
    """Watches torch and trainers strictly: a failure of ours fails the test."""
    with followed() as recorder:
        yield recorder


@pytest.fixture
def fit(pl, tmp_path):
    """Trains a module; gives it and its trainer."""
    return Fits(pl, tmp_path)


def test_each_batch_is_a_step(recorder, fit):
    """Without accumulation each batch of each epoch is a step of one fetch, forward, backward and update."""
    fit(loader(3), max_epochs=2)
    assert seen(recorder) == [step()] * 6


def test_accumulation_groups(recorder, fit):
    """Ten micro-batches by four are groups of four, four and two: the shorter last one is completed."""
    fit(loader(10), accumulate_grad_batches=4)
    batches = recorder.timing.drain()
    assert [(batch.step, batch.microbatches, batch.samples) for batch in batches] == [(1, 4, 8), (2, 4, 8), (3, 2, 4)]
    for batch in batches:
        recorder.timing.put(batch)
    assert seen(recorder) == [step(4), step(4), step(2)]


def test_accumulation_groups_of_a_stream(recorder, fit):
    """Without a length a batch is fetched ahead; the wait for it is the step's that it delays, and no fetch is lost."""
    fit(stream(10), accumulate_grad_batches=4, max_epochs=2)
    epoch = [step(4, input_wait=5), step(4), step(2, input_wait=1)]
    assert seen(recorder) == epoch * 2


def test_stream_of_one_batch(recorder, fit):
    """The only batch of a stream, after which the stream is found to have ended, has its fetch."""
    fit(stream(1), max_epochs=2)
    assert seen(recorder) == [step()] * 2


def test_manual_optimization(recorder, fit, pl):
    """With manual optimization each batch is a step, with all the backward calls and updates made in it."""
    fit(loader(3), manual_module_of(pl)())
    assert seen(recorder) == [step(forward=2, backward=2, optimizer=2)] * 3


def test_strategy_that_accumulates_itself(recorder, fit, pl):
    """A strategy that owns accumulation publishes groups with an update; the unfinished last one is discarded."""

    class Own(pl.strategies.SingleDeviceStrategy):
        handles_gradient_accumulation = True

    fit(loader(10), accumulate_grad_batches=4, strategy=Own(torch.device("cpu")))
    assert seen(recorder) == [step(4, optimizer=4)] * 2
    assert recorder.active.regions == []


@pytest.mark.parametrize("reentrant", [False, True])
def test_nested_calls_and_recomputation(recorder, fit, pl, reentrant):
    """The module's own call is one forward: what it calls, and what backward computes again, is not counted again."""

    class Nested(module_of(pl)):
        def forward(self, inputs):
            hidden = self.net[0](inputs).requires_grad_()
            return checkpoint(self.net[1:], hidden, use_reentrant=reentrant)

        def training_step(self, batch, batch_idx):
            return nn.functional.mse_loss(self(batch[0]), batch[1])

    fit(loader(3), Nested())
    assert seen(recorder) == [step()] * 3


class Parts(nn.Module):
    """Gives a class of a module with several children; mixed in, since there are two packages."""

    def parts(self):
        self.encoder, self.decoder, self.criterion = nn.Linear(4, 8), nn.Linear(8, 1), nn.MSELoss()
        self.teacher = nn.Linear(4, 1).eval().requires_grad_(requires_grad=False)


def test_direct_children(recorder, fit, pl):
    """Each call of a direct child in `training_step` is a forward: a loss, and a teacher without gradients too."""

    class Several(module_of(pl), Parts):
        def __init__(self):
            super().__init__()
            self.parts()

        def training_step(self, batch, batch_idx):
            with torch.no_grad():
                wanted = self.teacher(batch[0])
            return self.criterion(self.decoder(self.encoder(batch[0])), wanted)

    fit(loader(3), Several())
    assert seen(recorder) == [step(forward=4)] * 3


def test_calls_outside_of_training_step(recorder, fit, pl):
    """What callbacks and hooks of the module call around `training_step` is no forward."""

    class Curious(pl.Callback):
        def on_train_batch_start(self, trainer, module, *_):
            module.loss((torch.zeros(2, 4), torch.zeros(2, 1))).backward()
            module.zero_grad()

        def on_train_batch_end(self, trainer, module, *_):
            module.loss((torch.zeros(2, 4), torch.zeros(2, 1)))

    fit(loader(3), callbacks=[Curious()])
    assert [step["forward"] for step in seen(recorder)] == [1] * 3


def test_exception_discards_all_since_the_last_update(recorder, fit, pl):
    """An exception passes unchanged and discards the whole group in progress, and the module is left as it was."""
    error = ArithmeticError("the program's own")

    class Failing(module_of(pl)):
        def training_step(self, batch, batch_idx):
            if batch_idx == 6:
                raise error
            return super().training_step(batch, batch_idx)

    original, module = Failing.training_step, Failing()
    with pytest.raises(ArithmeticError) as caught:
        fit(loader(10), module, accumulate_grad_batches=4)
    assert caught.value is error
    assert recorder.steps == 1
    assert recorder.active.regions == []
    assert Failing.training_step is original
    assert slots_of(module) == []
    fit(loader(4), accumulate_grad_batches=4)
    assert seen(recorder) == [step(4)] * 2


@pytest.mark.parametrize(
    "where", ["training_step", "on_train_batch_end", "validation_step", "on_before_optimizer_step"]
)
def test_interrupted_anywhere(recorder, fit, pl, where):
    """Wherever training is interrupted, the group in progress is no step and the next fit is measured as ever."""

    def interrupted(self, *args, **kwargs):
        raise KeyboardInterrupt

    kind = type("Interrupted", (module_of(pl),), {where: interrupted})
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        fit(loader(4), kind(), loader(2), num_sanity_val_steps=0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning switches it off
    completed = recorder.steps
    assert completed == {"training_step": 0, "on_before_optimizer_step": 0, "on_train_batch_end": 1}.get(where, 4)
    fit(loader(2))
    assert seen(recorder)[completed:] == [step()] * 2


def slots_of(module):
    """The module and its children, in so far as something stands in their slots."""
    return [part for part in (module, *module.children()) if vars(part).get("_compiled_call_impl") is not None]


def test_hooks_come_after_setup_and_go_at_teardown(recorder, fit, pl, tmp_path):
    """Averaged copies and checkpoints carry nothing of ours; hooks stand while batches are trained, and no longer."""
    found = {}

    class Watching(pl.Callback):
        def setup(self, trainer, module, **_):
            found["copy"] = copy.deepcopy(module)
            found["setup"] = slots_of(module), type(module).training_step

        def on_train_batch_end(self, trainer, module, *_):
            found["training"] = slots_of(module), type(module).training_step
            found["late copy"] = copy.deepcopy(module.net)
            trainer.save_checkpoint(tmp_path / "last.ckpt")

        def teardown(self, trainer, module, **_):
            found["callbacks"] = [type(callback).__name__ for callback in trainer.callbacks]

    kind = module_of(pl)
    original = kind.training_step
    module, trainer = fit(loader(3), kind(), callbacks=[Watching()])
    assert found["setup"] == ([], original)
    assert found["training"][0] == [module, module.net]
    assert found["training"][1] is not original
    for copied in (found["copy"], found["late copy"]):
        assert slots_of(copied) == []
        assert "training_step" not in vars(copied)
    assert slots_of(module) == []
    assert kind.training_step is original
    assert found["callbacks"] == ["Watching", "StepmeterCallback"]
    assert [type(callback).__name__ for callback in trainer.callbacks] == ["Watching"]
    assert b"stepmeter" not in (tmp_path / "last.ckpt").read_bytes()
    assert seen(recorder) == [step()] * 3


def test_weight_averaging(recorder, fit, pl):
    """Lightning's own averaging copies the module before anything of ours is in it, and computes what it would."""
    averaging = getattr(pl.callbacks, "EMAWeightAveraging", None)
    if averaging is None:
        pytest.skip("since 2.6")
    module, _ = fit(loader(6), callbacks=[averaging(decay=0.5)], max_epochs=2)
    assert seen(recorder) == [step()] * 12
    unhook_trainers()
    alone, _ = fit(loader(6), callbacks=[averaging(decay=0.5)], max_epochs=2)
    assert all(torch.equal(one, other) for one, other in zip(module.parameters(), alone.parameters(), strict=True))


def test_resumed(recorder, fit, tmp_path):
    """After a resume steps are counted in this process, not from the checkpoint."""
    _, trainer = fit(loader(3))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    recorder.steps = 0
    recorder.timing.drain()
    resumed = fit.trainer(max_epochs=2)
    resumed.fit(fit.module(), loader(3), ckpt_path=tmp_path / "last.ckpt")
    assert resumed.global_step == 6
    assert [batch.step for batch in recorder.timing.drain()] == [1, 2, 3]


# ── what is nobody's step ───────────────────────────────────────────────────────────────────────────────────────────


def test_evaluation_is_outside(recorder, fit, pl):
    """The sanity check, validation in the middle of a group, testing and prediction are in no step."""

    class Slow(module_of(pl)):
        def validation_step(self, batch, batch_idx):
            time.sleep(0.02)  # without a call of the module

    module, trainer = fit(loader(8), Slow(), stream(2), accumulate_grad_batches=4, val_check_interval=2)
    trainer.validate(module, loader(2), verbose=False)
    trainer.test(module, loader(2), verbose=False)
    trainer.predict(module, loader(2))
    batches = recorder.timing.drain()
    for batch in batches:
        assert batch.away_ns >= 40_000_000
        assert step_facts(batch).traced_cpu_ns <= batch.end_ns - batch.start_ns - batch.away_ns
        recorder.timing.put(batch)
    assert seen(recorder) == [step(4)] * 2


def test_evaluations_alone(recorder, pl, fit):
    """A process that only evaluates makes no step."""
    trainer = fit.trainer()
    trainer.validate(fit.module(), loader(3), verbose=False)
    trainer.predict(fit.module(), loader(3))
    assert recorder.steps == 0
    assert recorder.active.regions == []


def test_work_between_micro_batches(recorder, fit, pl):
    """What other callbacks do behind a micro-batch, as checkpoints do, is neither traced nor input."""

    class Slow(pl.callbacks.Checkpoint):
        def on_train_batch_end(self, *_):
            time.sleep(0.02)

    fit(loader(4), accumulate_grad_batches=2, callbacks=[Slow()], enable_checkpointing=True)
    batches = recorder.timing.drain()
    assert [batch.away_ns >= 20_000_000 for batch in batches] == [True, True]


def test_batch_size_finder(recorder, fit, pl):
    """The steps of a batch-size search are nobody's; those after it are counted."""

    class Sized(module_of(pl)):
        batch_size = 2

        def train_dataloader(self):
            return loader(8, batch_size=self.batch_size)

        def val_dataloader(self):
            return loader(1)

    finder = pl.callbacks.BatchSizeFinder(max_trials=2, steps_per_trial=2)
    _, trainer = fit(None, Sized(), callbacks=[finder])
    assert trainer.global_step == len(seen(recorder))
    assert recorder.timing.drain() == []


def test_learning_rate_finder(recorder, fit, pl):
    """The steps of a search for a learning rate are nobody's; those after it are counted."""

    class Rated(module_of(pl)):
        rate = 0.1

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), self.rate)

    finder = pl.callbacks.LearningRateFinder(num_training_steps=5, attr_name="rate")
    _, trainer = fit(loader(6), Rated(), callbacks=[finder])
    assert seen(recorder) == [step()] * trainer.global_step  # 6; 2.1 goes on where the search has stopped


def test_fit_within_a_fit(recorder, fit, pl):
    """A fit that a callback makes is nobody's, and the outer one goes on as before."""

    class Nesting(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            if batch_idx == 1:
                fit(loader(5))

    fit(loader(4), callbacks=[Nesting()])
    assert seen(recorder) == [step()] * 4


# ── input ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_any_iterable(recorder, fit):
    """An input that is no torch loader, such as a class of one's own, is waited for all the same."""

    class Own:
        def __iter__(self):
            return iter([tuple(batch) for batch in loader(3)])

        def __len__(self):
            return 3

    fit(Own())
    assert seen(recorder) == [step()] * 3


def test_several_loaders(recorder, fit, pl):
    """Several loaders read together are one fetch a batch."""

    class Two(module_of(pl)):
        def training_step(self, batch, batch_idx):
            return super().training_step(batch["one"], batch_idx)

    fit({"one": loader(3), "two": loader(2)}, Two())
    batches = recorder.timing.drain()
    assert [(batch.microbatches, batch.samples) for batch in batches] == [(1, 2)] * 3


def test_iterator_handed_to_the_step(recorder, fit, pl):
    """A `training_step` that fetches its batch itself has that wait as input, not as work."""

    class Fetching(module_of(pl)):
        def training_step(self, dataloader_iter, *_):
            batch, *_ = next(dataloader_iter)
            return super().training_step(batch, 0)

    fit(loader(3), Fetching())
    assert seen(recorder) == [step()] * 3


class SlowToStart(DataLoader):
    """Takes its time to start its workers."""

    started = 0

    def _get_iterator(self):
        SlowToStart.started += 1
        time.sleep(0.05)
        return super()._get_iterator()


def test_workers(recorder, fit, pl):
    """Starting worker processes belongs to the fetch that needed them; persistent ones are started once."""
    SlowToStart.started = 0
    data = loader(2).dataset
    fit(SlowToStart(data, batch_size=2, num_workers=1, persistent_workers=True), max_epochs=2)
    batches = recorder.timing.drain()
    assert SlowToStart.started == 1
    if not pl.__version__.startswith("2.0."):  # which makes an iterator already where it checks its loaders
        assert step_facts(batches[0]).phases["input_wait"].cpu_ns >= 50_000_000
    for batch in batches:
        recorder.timing.put(batch)
    assert seen(recorder) == [step()] * 4


def test_other_loaders_within_a_step(recorder, fit, pl):
    """A loader that `training_step` reads for itself is no input of the step."""

    class Reading(module_of(pl)):
        def training_step(self, batch, batch_idx):
            assert len(list(loader(2))) == 2
            return super().training_step(batch, batch_idx)

    fit(loader(3), Reading())
    assert seen(recorder) == [step()] * 3


# ── steps that are odd ──────────────────────────────────────────────────────────────────────────────────────────────


def test_batch_without_a_loss(recorder, fit, pl):
    """A batch for which `training_step` gives no loss is a step without backward."""

    class Skipping(module_of(pl)):
        def training_step(self, batch, batch_idx):
            loss = super().training_step(batch, batch_idx)
            return None if batch_idx == 1 else loss

    fit(loader(3), Skipping())
    assert [one.get("backward") for one in seen(recorder)] == [1, None, 1]


def test_epoch_that_is_cut_short(recorder, fit, pl):
    """A batch that `on_train_batch_start` refuses is no step; what a group has goes on into the next update."""

    class Refusing(module_of(pl)):
        def on_train_batch_start(self, batch, batch_idx):
            return -1 if batch_idx == 3 else None

    fit(loader(8), Refusing(), accumulate_grad_batches=2, max_epochs=2)
    assert [one["forward"] for one in seen(recorder)] == [2, 3]


def test_lbfgs(recorder, fit, pl):
    """An optimizer that evaluates several times has its own work as update, and the evaluations as forward."""

    class Slow(module_of(pl)):
        def training_step(self, batch, batch_idx):
            time.sleep(0.01)
            return super().training_step(batch, batch_idx)

        def configure_optimizers(self):
            return torch.optim.LBFGS(self.parameters(), max_iter=3)

    module, _ = fit(loader(2), Slow())
    batches = recorder.timing.drain()
    assert [step_facts(batch).phases["forward"].count for batch in batches] == [3, 3]
    for batch in batches:
        assert residual_ns(batch) >= 3 * 10_000_000
    assert len(module.losses) == 6


def residual_ns(batch):
    """What of a step's traced time is in no phase."""
    facts = step_facts(batch)
    return facts.traced_cpu_ns - sum(phase.cpu_ns for name, phase in facts.phases.items() if name != "input_wait")


def test_closure_is_not_the_update(recorder, fit, pl):
    """Lightning trains within the optimizer's step; what lies between forward and backward there is residual."""

    class Slow(module_of(pl)):
        def loss(self, batch):
            loss = super().loss(batch)
            time.sleep(0.01)
            return loss

    fit(loader(3), Slow())
    assert [residual_ns(batch) >= 10_000_000 for batch in recorder.timing.drain()] == [True] * 3


def test_two_optimizers(recorder, fit, pl):
    """The two updates of a GAN, made by hand, are one step a batch."""

    class Gan(module_of(pl)):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.other = nn.Linear(4, 4)

        def training_step(self, batch, batch_idx):
            for optimizer in self.optimizers():
                optimizer.zero_grad()
                self.manual_backward(self.net(self.other(batch[0])).mean())
                optimizer.step()

        def configure_optimizers(self):
            return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.net, self.other)]

    fit(loader(3), Gan())
    assert seen(recorder) == [step(forward=4, backward=2, optimizer=2)] * 3


def test_compiled_module(recorder, fit, pl):
    """In a compiled module no call is seen: the compiled `training_step` is the forward, in the same graphs."""
    graphs = []
    torch._dynamo.reset()

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    class Net(module_of(pl)):
        def training_step(self, batch, batch_idx):
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

    fit(loader(3), torch.compile(Net(), backend=backend, fullgraph=True))
    assert len(graphs) == 1
    assert seen(recorder) == [step()] * 3
    torch._dynamo.reset()


def test_wrapped_by_ddp(recorder, fit, pl):
    """DDP calls the module around `training_step`: the loss computed there is residual all the same."""

    class Slow(module_of(pl)):
        def loss(self, batch):
            loss = super().loss(batch)
            time.sleep(0.01)
            return loss

    strategy = pl.strategies.DDPStrategy(process_group_backend="gloo")
    with mock.patch.dict(os.environ):  # Lightning leaves the rendezvous in it
        try:
            fit(loader(4), Slow(), strategy=strategy, devices=1, accumulate_grad_batches=2)
        finally:
            torch.distributed.destroy_process_group()
    batches = recorder.timing.drain()
    assert [residual_ns(batch) >= 20_000_000 for batch in batches] == [True] * 2
    assert {batch.identity.strategy for batch in batches} == {"ddp"}
    for batch in batches:
        recorder.timing.put(batch)
    assert seen(recorder) == [step(2)] * 2


# ── steps that the program marks itself ─────────────────────────────────────────────────────────────────────────────


def test_trace_step_in_training_step(recorder, fit, pl):
    """A `trace_step` of the program inside a group counts once: the group is the step."""

    class Traced(module_of(pl)):
        def training_step(self, batch, batch_idx):
            with trace_step(self):
                return super().training_step(batch, batch_idx)

    fit(loader(4), Traced(), accumulate_grad_batches=2)
    assert seen(recorder) == [step(2)] * 2


def test_callback_of_the_program(recorder, fit, pl):
    """A callback of the program that marks each batch as a step is reused: its steps count, and each once."""

    class Marking(pl.Callback):
        def on_train_batch_start(self, *_):
            self.step = trace_step()
            self.step.__enter__()

        def on_train_batch_end(self, *_):
            self.step.__exit__(None, None, None)

    fit(loader(4), callbacks=[Marking()], accumulate_grad_batches=2)
    assert [one["forward"] for one in seen(recorder)] == [1] * 4


def test_complete_step_capture(recorder, fit, pl):
    """A program that completes its steps itself has these, and no second one for the rest of the batch."""

    class Completing(pl.Callback):
        def on_train_batch_end(self, *_):
            complete_step_capture()

    fit(loader(3), callbacks=[Completing()])
    assert seen(recorder) == [step()] * 3


def test_fit_within_a_block(recorder, fit):
    """A fit inside a `trace_step` is that step."""
    with trace_step():
        fit(loader(3))
    assert len(seen(recorder)) == 1


# ── two frameworks ──────────────────────────────────────────────────────────────────────────────────────────────────


def plain(batches):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in plain_loader(batches):
        update(net, optimizer, batch)


def test_plain_loop_before_and_after(recorder, fit):
    """A plain loop before a fit and one after it are measured as if there were no fit, and the count goes on."""
    plain(2)
    fit(loader(4), accumulate_grad_batches=2)
    plain(3)
    assert seen(recorder) == [step()] * 2 + [step(2)] * 2 + [step()] * 3


def test_plain_loop_after_a_failed_fit(recorder, fit, pl):
    """A fit that has failed hands the steps back too."""

    class Failing(module_of(pl)):
        def training_step(self, batch, batch_idx):
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        fit(loader(2), Failing())
    plain(3)
    assert seen(recorder) == [step()] * 3
