from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import pytest
import torch
from tests.support.training import loader, loss_of, seen, update

from stepmeter.capture.ending import abort_step_capture, complete_step_capture
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.explicit import trace_step, wrap_loader
from stepmeter.instrumentation.instrumentor import install, uninstall

STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}
NO_INPUT = {"forward": 1, "backward": 1, "optimizer": 1}


def test_trace_step_is_the_step(recorder, net, optimizer):
    """Each block is one step, and the fetch before it belongs to it."""
    for batch in loader(4):
        with trace_step(net):
            update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 4


def test_step_ends_with_its_block(recorder, net, optimizer):
    """What a program does after a block and before the next fetch belongs to no step."""
    ends_ns = []
    for batch in loader(3):
        with trace_step():
            update(net, optimizer, batch)
        ends_ns.append(recorder.timing.drain()[0].end_ns)
        loss_of(net.eval(), batch)
        net.train()
    assert ends_ns == sorted(ends_ns)
    assert recorder.steps == 3


def test_several_updates_in_a_block(recorder, net, optimizer):
    """A block decides alone: two updates and a whole accumulation inside it are one step."""
    data = iter(loader(8))
    for _ in range(2):
        with trace_step(net):
            for _ in range(4):
                update(net, optimizer, next(data))
    assert seen(recorder) == [dict.fromkeys(STEP, 4)] * 2


def test_nested_blocks_count_once(recorder, net, optimizer):
    """A block inside another counts once, the outer."""
    for batch in loader(3):
        with trace_step(net), trace_step(net):
            update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 3


def test_takes_over(recorder, net, optimizer):
    """From the first block on loops without one make no steps, and those before it have been kept."""
    for batch in loader(2):
        update(net, optimizer, batch)
    for batch in loader(2):
        with trace_step(net):
            update(net, optimizer, batch)
    for batch in loader(2):
        update(net, optimizer, batch)
    assert seen(recorder) == [STEP] * 4


def test_evaluation_between_blocks(recorder, net, optimizer):
    """An evaluation between two blocks is charged to neither."""
    for batch in loader(3):
        with trace_step(net):
            update(net, optimizer, batch)
        with torch.no_grad():
            for other in loader(2):
                loss_of(net, other)
    assert seen(recorder) == [STEP] * 3


def test_exception_discards_the_step(recorder, net, optimizer):
    """An exception through a block passes unchanged, discards the step and moves no counter."""
    error = ArithmeticError("the program's own")
    for number, batch in enumerate(loader(3)):
        with pytest.raises(ArithmeticError) if number == 1 else nullcontext() as caught, trace_step(net):
            update(net, optimizer, batch)
            if number == 1:
                raise error
        assert number != 1 or caught.value is error
    assert seen(recorder) == [STEP] * 2
    assert recorder.steps == 2


def test_hand_written_update(recorder, net):
    """A loop without any optimizer is seen through a block that names its model."""
    for batch in loader(3):
        with trace_step(net):
            loss_of(net, batch).backward()
            with torch.no_grad():
                for parameter in net.parameters():
                    parameter.sub_(0.1 * parameter.grad)
                    parameter.grad = None
    assert seen(recorder) == [{"input_wait": 1, "forward": 1, "backward": 1}] * 3


def test_named_model_stays_watched(recorder, net):
    """A model named in a block stays a root when an optimizer is made later."""
    for batch in loader(2):
        with trace_step(net):
            loss_of(net, batch).backward()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for batch in loader(2):
        with trace_step(net):
            update(net, optimizer, batch)
    assert [step["forward"] for step in seen(recorder)] == [1] * 4


def test_named_model_warms_up_once(recorder, net, optimizer):
    """A program that names its model has it watched at once: only its first step is warm-up."""
    for batch in loader(4):
        with trace_step(net):
            update(net, optimizer, batch)
    assert [batch.warmup for batch in recorder.timing.drain()] == [True, False, False, False]


def test_complete_by_hand(recorder, net, optimizer):
    """A program may end its steps with the function alone; only until the first call an update alone ends one."""
    for batch in loader(3):
        update(net, optimizer, batch)
        update(net, optimizer, batch)
        complete_step_capture()
    two_updates = {"input_wait": 1, "forward": 2, "backward": 2, "optimizer": 2}
    assert seen(recorder) == [STEP, NO_INPUT, two_updates, two_updates]


def test_abort_inside_a_block(recorder, net, optimizer):
    """A step that was aborted inside its block is not completed at the block's end."""
    for number, batch in enumerate(loader(3)):
        with trace_step(net):
            update(net, optimizer, batch)
            if number == 1:
                abort_step_capture()
    assert seen(recorder) == [STEP] * 2


def test_blocks_in_a_thread(recorder, net, optimizer):
    """The thread of a block is the one that trains."""

    def train():
        for batch in loader(3):
            with trace_step(net):
                update(net, optimizer, batch)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert [step["forward"] for step in seen(recorder)] == [1] * 3


def numbers(net, optimizer, batches):
    for batch in batches:
        update(net, optimizer, batch)


def test_wrapped_iterable(recorder, net, optimizer):
    """The fetches of any iterable that was wrapped are input wait and end steps, as a loader's do."""
    batches = wrap_loader(list(loader(4)))
    numbers(net, optimizer, batches)
    numbers(net, optimizer, batches)
    assert len(batches) == 4
    assert seen(recorder) == [STEP] * 8


def test_wrapped_generator(recorder, net, optimizer):
    """A generator can be wrapped; it has no length, and is read once."""
    wrapped = wrap_loader(batch for batch in list(loader(3)))
    with pytest.raises(TypeError):
        len(wrapped)
    numbers(net, optimizer, wrapped)
    assert seen(recorder) == [STEP] * 3


def test_wrapped_loader_counts_once(recorder, net, optimizer):
    """A torch loader that was wrapped is counted once and keeps its attributes."""
    wrapped = wrap_loader(loader(3))
    assert wrapped.batch_size == 2
    assert copy.copy(wrapped).batch_size == 2
    numbers(net, optimizer, wrapped)
    assert seen(recorder) == [STEP] * 3


def test_wrapped_before_installation(net, optimizer):
    """An iterable that was wrapped and begun before torch is watched is timed from then on."""
    fetches = iter(wrap_loader(list(loader(4))))
    update(net, optimizer, next(fetches))
    recorder = Recorder()
    install(recorder, strict=True)
    try:
        numbers(net, optimizer, fetches)
        assert seen(recorder) == [STEP] * 3
    finally:
        uninstall()
    assert list(fetches) == []


def test_nothing_without_installation(net, optimizer):
    """Without an installation blocks run, wrapped iterables iterate, and exceptions pass."""
    for batch in wrap_loader(list(loader(2))):
        with trace_step(net), trace_step():
            update(net, optimizer, batch)
    with pytest.raises(ZeroDivisionError), trace_step():
        raise ZeroDivisionError
    complete_step_capture()
    abort_step_capture()


def test_forked_child(recorder, net, optimizer):
    """In a forked child blocks run and record nothing, also one that was open at the fork."""
    batches = list(loader(2))
    with trace_step(net):
        update(net, optimizer, batches[0])
        child = os.fork()
        if child == 0:
            with trace_step(net):
                update(net, optimizer, batches[1])
        else:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if child == 0:
        with trace_step(net):
            update(net, optimizer, batches[1])
        os._exit(len(recorder.timing))
    assert seen(recorder) == [NO_INPUT]


def test_failure_of_ours_runs_the_block(net, optimizer, monkeypatch):
    """When a block can't be opened or closed its body runs all the same, and the failure is reported."""
    from stepmeter.instrumentation.marking import Marking

    recorder, faults = Recorder(), []
    recorder.on_fault = lambda kind, error: faults.append(kind)
    install(recorder)
    try:
        for name in ("step_begins", "step_ended"):
            monkeypatch.setattr(Marking, name, lambda *_: 1 / 0)
            ran = []
            for batch in loader(2):
                with trace_step(net):
                    ran.append(update(net, optimizer, batch))
            assert len(ran) == 2
            monkeypatch.undo()
    finally:
        uninstall()
    assert set(faults) == {"trace_step", "step"}


def test_torch_is_not_imported():
    """Marking steps in a program without torch does not import it."""
    code = (
        "import sys\n"
        "from stepmeter.instrumentation.explicit import trace_step, wrap_loader\n"
        "with trace_step():\n"
        "    assert list(wrap_loader([1, 2])) == [1, 2]\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
