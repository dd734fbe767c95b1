"""One step of a Hugging Face Trainer: its micro-batches, its input, and what lies beside it."""

import threading
import time

import pytest
import torch
from tests.support.device import FakeDevice
from tests.support.huggingface import (
    UPDATES_SHORT_GROUPS,
    Examples,
    Groups,
    Net,
    Stream,
    batches_of,
    copies,
    counts,
    equal,
    followed,
    light,
    of,
    trained,
    trainer,
)
from tests.support.training import loader, model, update
from torch import nn
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainerCallback

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.ending import complete_step_capture
from stepmeter.capture.facts import step_facts
from stepmeter.conventions.phases import INPUT_WAIT, PHASES
from stepmeter.instrumentation.explicit import TracedStep, trace_step
from stepmeter.instrumentation.instrumentor import installed

pytestmark = pytest.mark.filterwarnings("default")  # an old transformers warns of its own surroundings

MS = 1_000_000
PLAIN = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}
GROUPS = [4, 4, 2] if UPDATES_SHORT_GROUPS else [4, 4]


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


# ── groups ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ten_micro_batches_by_four_are_three_steps(recorder):
    """Ten micro-batches accumulated by four give steps of four, four and two, as the trainer's own events say."""
    groups = Groups()
    trainer(callbacks=[groups]).train()
    steps = batches_of(recorder)

    assert groups.sizes == GROUPS
    assert [counts(step) for step in steps] == [of(size) for size in GROUPS]
    assert [(step.microbatches, step.samples, step.tokens) for step in steps] == [(n, 2 * n, 12 * n) for n in GROUPS]


def test_a_micro_batch_advances_nothing(recorder):
    """The counter moves at an update only, and by one, as the trainer's own does."""
    seen = []

    class Counting(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            seen.append(recorder.steps == state.global_step)

        on_log = on_substep_end  # comes after the end of a step

    trainer(callbacks=[Counting()], logging_strategy="steps", logging_steps=1).train()

    assert all(seen)
    assert recorder.steps == len(GROUPS)


def test_epochs_and_single_batches(recorder):
    """Without accumulation each batch of each epoch is a step, with one fetch each: none has two and none lacks one."""
    trainer(batches=3, gradient_accumulation_steps=1, num_train_epochs=2).train()

    assert [counts(step) for step in batches_of(recorder)] == [of(1)] * 6


def test_a_group_that_spans_epochs(recorder):
    """Over several epochs there are as many steps as updates, and each has the micro-batches between two updates."""
    groups = Groups()
    made = trainer(batches=6, num_train_epochs=3, callbacks=[groups])
    made.train()
    steps = batches_of(recorder)

    assert len(steps) == made.state.global_step
    assert [counts(step)["forward"] for step in steps] == groups.sizes
    assert [counts(step)["backward"] for step in steps] == groups.sizes


def test_a_stream_that_ends_within_a_group(recorder):
    """A stream that ends within a group loses no fetch by its end; what it left goes into the next epoch's update."""
    groups = Groups()
    trainer(data=Stream(12), max_steps=2, callbacks=[groups]).train()
    steps = batches_of(recorder)

    assert groups.sizes == [4, 6] if UPDATES_SHORT_GROUPS else [4, 4]
    assert [counts(step)["forward"] for step in steps] == groups.sizes
    assert [step.microbatches for step in steps] == [4, 6]


def test_worker_processes(recorder):
    """Worker processes change nothing in what is seen."""
    trainer(batches=4, gradient_accumulation_steps=2, dataloader_num_workers=1).train()

    assert [counts(step) for step in batches_of(recorder)] == [of(2)] * 2


def test_a_compiled_model(recorder, monkeypatch):
    """With `torch_compile` each micro-batch is one forward as before."""
    for name, value in {"BACKEND": "no", "MODE": "default", "USE_FULLGRAPH": "0", "USE_DYNAMIC": "0"}.items():
        monkeypatch.setenv(f"ACCELERATE_DYNAMO_{name}", value)  # the arguments leave these set
    torch._dynamo.reset()
    trainer(batches=4, gradient_accumulation_steps=2, torch_compile=True, torch_compile_backend="eager").train()

    assert [counts(step) for step in batches_of(recorder)] == [of(2)] * 2


# ── input ───────────────────────────────────────────────────────────────────────────────────────────────────────


class InOrder(Trainer):
    def _get_train_sampler(self, *args):
        return SequentialSampler(self.train_dataset)


def test_the_wait_for_a_batch_fetched_ahead_is_the_current_steps(recorder):
    """Accelerate fetches a batch ahead; what it waits for then delays the current step, and is its input wait."""
    slow = Examples(12, before=lambda index: time.sleep(0.05 if index == 6 else 0))
    trainer(kind=InOrder, data=slow, gradient_accumulation_steps=1).train()

    waits_ns = [step_facts(step).phases["input_wait"].cpu_ns for step in batches_of(recorder)]
    assert max(waits_ns) == waits_ns[2] >= 50 * MS  # examples 6 and 7 are the fourth batch, fetched with the third


def test_copies_to_the_device(recorder):
    """Each batch's copies to the device are timed within its fetch, count as traced time, and are no input wait."""
    trainer().train()

    for step in batches_of(recorder):
        assert copies(step)[0] == 2 * step.microbatches
        facts = step_facts(step)
        waits_ns = sum(end - start for phase, start, end, _ in step.regions if PHASES[phase] == INPUT_WAIT)
        assert facts.phases["input_wait"].cpu_ns < waits_ns
        assert facts.traced_cpu_ns == step.end_ns - step.start_ns - facts.phases["input_wait"].cpu_ns - step.away_ns


class Slow(Trainer):
    """Counts tokens, or the like, for 30 ms, and copies something."""

    def get_batch_samples(self, *args):
        result = super().get_batch_samples(*args)
        torch.zeros(2).to("cpu")
        time.sleep(0.03)
        return result


def test_bookkeeping_of_the_collection_is_in_neither(recorder, capfd):
    """What `get_batch_samples` does beside fetching is neither input wait nor traced time, nor are its copies."""
    trainer(kind=Slow).train()
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(size) for size in GROUPS]
    assert all(step.away_ns >= 30 * MS for step in steps)
    assert all(copies(step) == (2 * step.microbatches, 2) for step in steps)  # two by the step's own preparation
    assert "overridden" not in capfd.readouterr().err


class Bypassing(Trainer):
    """Collects its batches itself."""

    def get_batch_samples(self, epoch_iterator, num_batches, *args):
        return [batch for _, batch in zip(range(num_batches), epoch_iterator)], None  # noqa: B905 - the iterator is longer


def test_an_overridden_collection_is_said_once_and_omitted(recorder, capfd, monkeypatch):
    """A trainer that collects its batches itself is warned of once; its steps have no input wait, no early copies."""
    monkeypatch.setattr("stepmeter.integrations.huggingface_attempt._said", set())
    for _ in range(2):
        trainer(kind=Bypassing, batches=8).train()
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(4, input_wait=0)] * 4
    assert all(copies(step)[0] == 0 for step in steps)
    said = capfd.readouterr()
    assert said.err.count("get_batch_samples is overridden") == 1
    assert "overridden" not in said.out


def test_on_a_device(recorder):
    """With a device's clock each region of each micro-batch has its pair of events, and nothing is without a time."""
    device = FakeDevice()
    installed().boundaries.timer = device.timer()
    trainer().train()
    device.run()
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(size) for size in GROUPS]
    for step in steps:
        facts = step_facts(step, step.device.resolve(step.regions))
        assert all(phase.gpu_ns is not None for phase in facts.phases.values())
        assert facts.traced_gpu_ns is not None


# ── what is beside ──────────────────────────────────────────────────────────────────────────────────────────────


class Beside(TrainerCallback):
    """Notes when the trainer logs, saves and evaluates."""

    def __init__(self):
        self.times_ns = []

    def _note(self, args, state, control, **kwargs):
        start_ns = monotonic_ns()
        time.sleep(0.002)
        self.times_ns.append((start_ns, monotonic_ns()))

    on_log = on_save = on_evaluate = on_epoch_end = on_epoch_begin = _note


def test_logging_saving_and_evaluation_are_in_no_step(recorder):
    """What the trainer does after an update, and its evaluation's fetches and copies, is nobody's step."""
    beside = Beside()
    every = {"logging_strategy": "steps", "logging_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    made = trainer(
        callbacks=[beside], eval_dataset=Examples(8), save_strategy="steps", save_steps=1, save_only_model=True, **every
    )
    made.train()
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [of(size) for size in GROUPS]
    assert all(copies(step) == (2 * step.microbatches, 2) for step in steps)
    assert len(beside.times_ns) >= 3 * len(steps)
    for start_ns, end_ns in beside.times_ns:
        assert not any(start_ns < step.end_ns and step.start_ns < end_ns for step in steps)


def test_other_callbacks_count_where_they_run_inside(recorder):
    """Work of other callbacks between a step's begin and its end is traced time, as clipping and zeroing are."""

    class Inside(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            time.sleep(0.01)

        on_step_begin = on_pre_optimizer_step = on_step_end = on_substep_end

    class Zeroing(Net):
        def zero_grad(self, *args, **kwargs):
            zeroed_ns.append(monotonic_ns())
            super().zero_grad(*args, **kwargs)

    zeroed_ns = []
    trainer(callbacks=[Inside()], model=Zeroing(), batches=4).train()
    (step,) = batches_of(recorder)

    assert step_facts(step).traced_cpu_ns >= 6 * 10 * MS  # begin, three substeps, before the update, end
    assert any(step.start_ns < zero_ns < step.end_ns for zero_ns in zeroed_ns)
    assert counts(step) == of(4)


def test_evaluation_within_a_step(recorder):
    """A callback that evaluates between micro-batches takes neither its fetches nor its time into the step."""

    class Evaluating(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            start_ns = monotonic_ns()
            made.evaluate()
            made.predict(Examples(4))
            times_ns.append(monotonic_ns() - start_ns)

    times_ns = []
    made = trainer(callbacks=[Evaluating()], eval_dataset=Examples(8), batches=4)
    made.train()
    (step,) = batches_of(recorder)

    assert counts(step) == of(4)
    assert copies(step)[0] == 8
    assert len(times_ns) == 3
    assert step_facts(step).traced_cpu_ns < step.end_ns - step.start_ns - 0.9 * sum(times_ns)


def test_evaluation_outside_of_training(recorder):
    """`evaluate` and `predict` outside of `train` leave nothing to the next step, and end the one before."""
    made = trainer(eval_dataset=Examples(8))
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    ends_ns = []
    for batch in loader(3):
        update(net, optimizer, batch)
        ends_ns.append(monotonic_ns())
        made.evaluate()
        made.predict(Examples(4))
    steps = batches_of(recorder)

    assert [counts(step) for step in steps] == [PLAIN] * 3
    for step, end_ns, next_ns in zip(
        steps, ends_ns, [*(step.start_ns for step in steps[1:]), monotonic_ns()], strict=True
    ):
        assert step.start_ns < end_ns <= step.end_ns <= next_ns
        assert copies(step) == (0, 0)


# ── ownership ───────────────────────────────────────────────────────────────────────────────────────────────────


class Tracing(TrainerCallback):
    """A callback as a user writes it who marks steps by hand."""

    def on_step_begin(self, args, state, control, **kwargs):
        self.step = trace_step()
        self.step.__enter__()

    def on_step_end(self, args, state, control, **kwargs):
        self.step.__exit__(None, None, None)


class Completing(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        complete_step_capture()


@pytest.mark.parametrize("callbacks", [[Tracing()], [Tracing(), Tracing()], [Completing()], [Tracing(), Completing()]])
def test_callbacks_that_mark_steps_too_are_counted_once(recorder, callbacks):
    """Callbacks of the program that mark the same steps, once or twice, change nothing: a step has one owner."""
    made = trainer()
    made.callback_handler.callbacks += callbacks
    made.train()

    assert [counts(step) for step in batches_of(recorder)] == [of(size) for size in GROUPS]


def test_a_trainer_within_a_trainer_is_nobodys_step(recorder):
    """A callback that trains another model has no part in the steps, between them or inside one."""

    class Training(TrainerCallback):
        def on_substep_end(self, args, state, control, **kwargs):
            inner = trainer(batches=2, gradient_accumulation_steps=1, model=Net())
            inner.train()
            assert inner.state.global_step == 2

        on_epoch_end = on_substep_end

    trainer(callbacks=[Training()], batches=4).train()

    (step,) = batches_of(recorder)
    assert counts(step) == of(4)


def test_a_loop_of_its_own_is_seen_as_any_loop(recorder):
    """A subclass with a training loop of its own goes past the guard: its steps are found as those of a plain loop."""

    class Own(Trainer):
        def _inner_training_loop(self, *args, **kwargs):
            self.create_optimizer()
            for batch in self.get_train_dataloader():
                self.compute_loss(self.model.train(), batch).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()

    trainer(kind=Own, batches=3).train()

    assert [counts(step) for step in batches_of(recorder)] == [of(1)] * 3


def test_plain_loops_before_and_after(recorder):
    """A trainer owns the steps while it trains: loops before and after it are measured as ever."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(2):
        for batch in loader(2):
            update(net, optimizer, batch)
        trainer().train()

    expected = [PLAIN] * 2 + [of(size) for size in GROUPS]
    assert [counts(step) for step in batches_of(recorder)] == expected * 2


def test_a_trainer_in_a_thread(recorder):
    """A trainer that runs in a thread of its own is measured there, and a loop in the main thread after it as ever."""
    thread = threading.Thread(target=lambda: trainer().train())
    thread.start()
    thread.join()
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(2):
        update(net, optimizer, batch)

    steps = [counts(step) for step in batches_of(recorder)]
    assert steps[: len(GROUPS)] == [of(size) for size in GROUPS]
    assert [step["optimizer"] for step in steps[len(GROUPS) :]] == [1, 1]


def test_an_outer_trace_step_owns_it_all(recorder):
    """A `trace_step` around a whole training is the one step."""
    with TracedStep():
        trainer(batches=4).train()

    (step,) = batches_of(recorder)
    assert counts(step)["optimizer"] == 1


def test_checkpointed_activations_are_no_forwards(recorder):
    """A model that computes its activations again in backward has one forward a micro-batch."""

    class Checkpointed(Net):
        def forward(self, input_ids, labels=None):
            hidden = torch.utils.checkpoint.checkpoint(self.embed, input_ids, use_reentrant=False)
            logits = self.head(hidden)
            return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}

    trainer(model=Checkpointed(), batches=4).train()

    assert [counts(step) for step in batches_of(recorder)] == [of(4)]


def test_training_is_bit_identical():
    """Losses and parameters are the same with and without us."""

    def losses():
        made = trainer(num_train_epochs=2, logging_strategy="steps", logging_steps=1)
        made.train()
        return trained(made)

    alone = losses()
    with followed():
        assert equal(losses(), alone)
