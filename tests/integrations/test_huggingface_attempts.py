"""Attempts of a Hugging Face Trainer: resumed, interrupted, tried again with a smaller batch, failed by us."""

import sys

import pytest
import torch
from tests.support.allocator import FakeAllocator
from tests.support.failing import fail, note, path_id
from tests.support.huggingface import (
    UPDATES_SHORT_GROUPS,
    Examples,
    Groups,
    Stream,
    batches_of,
    counts,
    equal,
    followed,
    light,
    of,
    trained,
    trainer,
)
from tests.support.training import loader, model, update
from transformers import Trainer, TrainerCallback

from stepmeter import integrations
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.boundary import Boundaries
from stepmeter.instrumentation.explicit import TimedIterator, TracedStep, is_tracing
from stepmeter.instrumentation.instrumentor import installed
from stepmeter.instrumentation.memory import PeakMemory
from stepmeter.integrations import huggingface, huggingface_attempt
from stepmeter.integrations.apart import Apart
from stepmeter.integrations.huggingface_attempt import Attempt
from stepmeter.telemetry.guard import Guard

pytestmark = pytest.mark.filterwarnings("default")  # an old transformers warns of its own surroundings

PLAIN = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}


@pytest.fixture(scope="module", autouse=True)
def _light():
    """One thread for torch, and what is loaded out of the garbage collector's sight."""
    with light():
        yield


@pytest.fixture
def recorder():
    """Follows the trainer strictly: a failure of ours fails the test."""
    with followed() as recorder:
        yield recorder


# ── resuming ────────────────────────────────────────────────────────────────────────────────────────────────────


def saved(data, directory):
    """A training of six updates of two micro-batches, with a checkpoint after the second; gives the trainer."""
    made = trainer(
        data=data,
        gradient_accumulation_steps=2,
        max_steps=6,
        output_dir=str(directory),
        save_strategy="steps",
        save_steps=2,
        logging_strategy="steps",
        logging_steps=1,
    )
    made.train()
    return made


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    """Checkpoints of trainings on both kinds of data sets, and what they came to, without us."""
    made = {}
    for kind in (Examples, Stream):
        directory = tmp_path_factory.mktemp("run")
        made[kind] = (f"{directory}/checkpoint-2", trained(saved(kind(48), directory)))
    return made


def resumed(kind, checkpoints, directory, before=lambda index: None, **changes):
    made = trainer(
        data=kind(48, before),
        gradient_accumulation_steps=2,
        max_steps=6,
        output_dir=str(directory),
        logging_strategy="steps",
        logging_steps=1,
        **changes,
    )
    made.train(resume_from_checkpoint=checkpoints[kind][0])
    assert made.state.global_step == 6
    return made


def test_a_map_style_resume_is_measured_from_its_first_group(recorder, checkpoints, tmp_path):
    """A sampler skips before any fetch: the first resumed group is a step like the others; numbers are local."""
    resumed(Examples, checkpoints, tmp_path)
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(2)] * 4
    assert [step.step for step in steps] == [1, 2, 3, 4]


def test_an_iterable_resume_omits_the_whole_first_group(recorder, checkpoints, tmp_path):
    """Skipped batches are read within the first fetch: that group is no step at all; its updates are made as ever."""
    fetched = []
    made = resumed(Stream, checkpoints, tmp_path, before=fetched.append)
    steps = batches_of(recorder)

    assert fetched[0] == 0  # it has fast-forwarded
    assert [counts(step) for step in steps] == [of(2)] * 3
    assert [step.step for step in steps] == [1, 2, 3]
    assert equal(trained(made), checkpoints[Stream][1])


def test_a_resume_that_skips_nothing_is_measured_normally(recorder, checkpoints, tmp_path):
    """With `ignore_data_skip` nothing is read in vain, and nothing omitted; nor is it in the next, fresh run."""
    resumed(Stream, checkpoints, tmp_path, ignore_data_skip=True)
    trainer(data=Stream(16), max_steps=2).train()

    assert [counts(step) for step in batches_of(recorder)] == [of(2)] * 4 + [of(4)] * 2


# ── leaving the loop ────────────────────────────────────────────────────────────────────────────────────────────


class Leaving(TrainerCallback):
    """Raises within the second group, after its second micro-batch."""

    def __init__(self, error):
        self.error, self.left = error, 4 + 1

    def on_substep_end(self, args, state, control, **kwargs):
        self.left -= 1
        if not self.left:
            raise self.error


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
def test_an_interrupted_group_is_no_step(recorder, error):
    """The exception is the program's own, the open group is discarded, and the count stands where it was."""
    with pytest.raises(type(error)) as caught:
        trainer(callbacks=[Leaving(error)], batches=12).train()
    assert caught.value is error
    assert recorder.steps == 1
    assert (huggingface._attempts, is_tracing()) == ([], False)
    trainer(batches=4).train()

    assert [(step.step, counts(step)) for step in batches_of(recorder)] == [(1, of(4)), (2, of(4))]


def test_an_error_in_the_data_leaves_nothing_behind(recorder):
    """Fetches of a group that never began are in no later step, and a plain loop afterwards is measured as ever."""

    def broken(index):
        if index == 5:
            raise OSError(index)

    with pytest.raises(OSError, match="5"):
        trainer(data=Stream(20, before=broken), max_steps=3).train()
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(2):
        update(net, optimizer, batch)

    assert [counts(step) for step in batches_of(recorder)] == [PLAIN] * 2


def test_a_retry_with_a_smaller_batch_starts_anew(recorder):
    """What failed before Accelerate's retry is not published and moves no counter; the retry is measured anew."""
    tried = []

    class OutOfMemory(Trainer):
        def training_step(self, model, inputs, *args, **kwargs):
            tried.append(len(inputs["input_ids"]))
            result = super().training_step(model, inputs, *args, **kwargs)
            if len(tried) == 6:  # in the second group
                raise RuntimeError("CUDA out of memory.")
            return result

    groups = Groups()
    made = trainer(kind=OutOfMemory, data=Examples(64), per_device_train_batch_size=8, auto_find_batch_size=True)
    made.add_callback(groups)
    made.train()
    steps = batches_of(recorder)

    assert tried[6] < tried[0] == 8
    assert groups.sizes[0] == 4  # before the failure
    assert [step.microbatches for step in steps] == groups.sizes
    assert steps[0].samples == 32
    batches = -(-64 // tried[6])
    updated = batches if UPDATES_SHORT_GROUPS else batches // 4 * 4
    assert sum(step.samples for step in steps[1:]) == min(64, updated * tried[6])
    assert made.state.global_step == len(steps) - 1


def test_a_stop_within_a_group_discards_it(recorder):
    """A callback that stops the training between two updates leaves no half step."""

    class Stopping(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.global_step == 1

    trainer(callbacks=[Stopping()]).train()

    assert [counts(step) for step in batches_of(recorder)] == [of(4)]


# ── updates ─────────────────────────────────────────────────────────────────────────────────────────────────────


class Overflowing(Trainer):
    """Trains with a gradient scaler, whose second update finds an infinite gradient."""

    def training_step(self, *args, **kwargs):
        result = super().training_step(*args, **kwargs)
        if self.state.global_step == 1:
            next(iter(self.model.parameters())).grad.fill_(float("inf"))
        return result


def scaled(**changes):
    made = trainer(kind=Overflowing, batches=12, **changes)
    made.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    return made


def test_an_update_that_the_scaler_skips_completes_its_step(recorder):
    """After an overflow the trainer counts a step, and so do we; no optimizer call is timed, for none was made."""
    made = scaled(optim="adamw_torch")
    skipped = []
    made.add_callback(Noting(made, skipped))
    made.train()

    assert skipped == [False, True, False]
    assert [counts(step) for step in batches_of(recorder)] == [of(4), of(4, optimizer=0), of(4)]


def test_a_fused_optimizer_is_called_all_the_same(recorder):
    """A fused optimizer skips the update within its call: that call is optimizer time."""
    scaled(optim="adamw_torch_fused").train()

    assert [counts(step) for step in batches_of(recorder)] == [of(4)] * 3


class Noting(TrainerCallback):
    def __init__(self, made, skipped):
        self.made, self.skipped = made, skipped

    def on_step_end(self, args, state, control, **kwargs):
        self.skipped.append(self.made.accelerator.optimizer_step_was_skipped)


def test_memory_is_measured_over_the_group(recorder):
    """Peaks are those of all of a group's micro-batches; an evaluation's are nobody's."""
    allocator = FakeAllocator()
    installed().boundaries.memory = PeakMemory(0, None, allocator.stats, allocator.reset_peaks)

    class Allocating(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            allocator.transient(1000 * (state.global_step + 1))

        def on_evaluate(self, args, state, control, **kwargs):
            allocator.transient(1_000_000)

    made = trainer(batches=12, callbacks=[Allocating()], eval_dataset=Examples(4), eval_strategy="steps", eval_steps=1)
    made.train()
    batches_of(recorder)

    assert [memory.peak_allocated_bytes for memory in recorder.memory.drain()] == [1000, 2000, 3000]


# ── ours ────────────────────────────────────────────────────────────────────────────────────────────────────────

OWNERS = [
    (Trainer, ("_inner_training_loop", "get_batch_samples", "evaluate", "predict")),
    (sys.modules["transformers.trainer_callback"].CallbackHandler, ("on_step_begin", "on_step_end", "on_substep_end")),
    (sys.modules["transformers.trainer"], ("skip_first_batches",)),
    (sys.modules["accelerate.data_loader"].DataLoaderShard, ("__iter__",)),
    (sys.modules["accelerate.data_loader"].DataLoaderDispatcher, ("__iter__",)),
    (sys.modules["accelerate.data_loader"].SkipDataLoader, ("__iter__",)),
]


def attributes():
    return [owner.__dict__[name] for owner, names in OWNERS for name in names]


def test_what_was_patched_is_put_back():
    """Following twice is following once; afterwards every attribute is the identical object that it was."""
    before = attributes()
    with followed() as recorder:
        once = attributes()
        integrations.hook_trainers(recorder)
        assert all(now is then for now, then in zip(attributes(), once, strict=True))
        assert not any(now is then for now, then in zip(once, before, strict=True))
    assert all(now is then for now, then in zip(attributes(), before, strict=True))


def test_a_trainer_goes_on_when_we_are_switched_off_under_it():
    """Switched off in the middle of a training, nothing more is seen and the training ends as it would."""

    class Ending(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            following.__exit__(None, None, None)

    following = followed()
    recorder = following.__enter__()
    made = trainer(batches=12)
    made.add_callback(Ending())
    made.train()

    assert made.state.global_step == 3
    assert recorder.steps <= 1
    assert not is_tracing()


def program():
    """Trainings that go through every path of ours: evaluated, predicted, resumed, nested, and left by an exception."""
    results = []
    made = saved(Stream(48), PROGRAM_DIRECTORY[0])
    results.append(trained(made))
    again = trainer(
        data=Stream(48),
        eval_dataset=Examples(4),
        max_steps=6,
        gradient_accumulation_steps=2,
        output_dir=made.args.output_dir,
    )
    again.train(resume_from_checkpoint=f"{made.args.output_dir}/checkpoint-2")
    results.append(trained(again))
    results.append(([again.evaluate()["eval_loss"], float(again.predict(Examples(4)).predictions.sum())], []))
    with pytest.raises(ValueError, match="mine"):
        trainer(callbacks=[Leaving(ValueError("mine"))], batches=12).train()
    inner = trainer(batches=2, gradient_accumulation_steps=1)

    class Nested(TrainerCallback):
        def on_epoch_end(self, args, state, control, **kwargs):
            inner.train()

    outer = trainer(batches=4, callbacks=[Nested()])
    outer.train()
    return [*results, trained(inner), trained(outer)]


PROGRAM_DIRECTORY = []

PATHS = [
    *[(Attempt, name) for name in ("__init__", "collecting", "collected", "fetch_begins", "fetch_ended", "_attend")],
    *[(Attempt, name) for name in ("step_begins", "_open", "_close", "micro_batch_ended", "step_ended", "ends")],
    *[(Apart, name) for name in ("__init__", "ends")],
    *[(huggingface, name) for name in ("_begin", "begin_apart", "_attempt_of_handler", "_skips")],
    *[(huggingface_attempt, name) for name in ("_uncovered_ns", "new_loader")],
    *[(Boundaries, name) for name in ("hand_over", "give_up", "adopt", "step_begins", "step_ended")],
    *[(TracedStep, name) for name in ("__enter__", "__exit__")],
    (TimedIterator, "__init__"),
    (Recorder, "complete"),
]


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the program computes without us."""
    PROGRAM_DIRECTORY[:] = [tmp_path_factory.mktemp("program")]
    return program()


def same(one, other):
    return all(equal(a, b) for a, b in zip(one, other, strict=True))


def watched():
    guard, faults = Guard(), []
    with followed(strict=False, copies=False) as recorder:
        recorder.on_fault = lambda kind, error: (faults.append(error), guard.fault(kind, error))
        return program(), recorder, guard, faults


def test_nothing_fails_by_itself(expected, monkeypatch):
    """The program goes through each of the paths, computes what it computes alone, and nothing is lost."""
    gone = note(monkeypatch, PATHS)
    result, recorder, guard, _ = watched()

    assert same(result, expected)
    assert guard.losses() == {}
    assert recorder.steps == 6 + 3 + 1 + 1
    assert set(PATHS) - gone == set()


@pytest.mark.parametrize("times", [1, 1_000_000])
@pytest.mark.parametrize("path", PATHS, ids=path_id)
def test_a_failure_of_ours_is_harmless(expected, monkeypatch, capfd, path, times):
    """A path that raises once or always leaves results bit-identical, is counted, and is said once a kind."""
    fail(monkeypatch, path, times)
    result, recorder, guard, faults = watched()

    assert same(result, expected)
    assert {str(error) for error in faults} == {path[1]}
    assert sum(guard.losses().values()) == len(faults)
    err = [line for line in capfd.readouterr().err.splitlines() if line.startswith("stepmeter: ")]
    assert len(err) == len(guard.losses())
    if times == 1:
        assert 0 < recorder.steps <= 11
