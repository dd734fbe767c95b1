from __future__ import annotations

import os

import pytest

from stepmeter.capture.ending import abort_step_capture, complete_step_capture, use_recorder
from stepmeter.capture.identity import Identity
from stepmeter.capture.step import Recorder


@pytest.fixture
def recorder():
    """A process's recorder."""
    recorder = Recorder(Identity(rank=1, world_size=2))
    use_recorder(recorder)
    yield recorder
    use_recorder(None)


def test_completion_publishes_both(recorder):
    """Completing a capture gives it the next number and publishes its timing and its last memory snapshot."""
    recorder.active.regions.append((2, 100, 200, None))
    recorder.active.batches += [(7, 4, 40), (7, 4, 30)]
    recorder.active.record("GPU-a", 10, 20)
    recorder.active.record("GPU-a", 30, 40)
    recorder.complete(recorder.active, 300)
    [batch] = recorder.timing.drain()
    assert (batch.step, batch.start_ns, batch.end_ns) == (1, 100, 300)
    assert (batch.microbatches, batch.samples, batch.tokens) == (2, 8, 70)
    assert batch.identity == Identity(rank=1, world_size=2)
    assert [tuple(memory)[:4] for memory in recorder.memory.drain()] == [(1, "GPU-a", 30, 40)]


def test_repeats_are_harmless(recorder):
    """Completing or aborting a capture that is already detached does nothing to the next one."""
    old = recorder.active
    complete_step_capture(old)
    recorder.active.regions.append((2, 100, 200, None))
    complete_step_capture(old)
    abort_step_capture(old)
    assert len(recorder.active.regions) == 1
    assert recorder.steps == 1


def test_abort_moves_no_counter(recorder):
    """An aborted capture is discarded and its number goes to the next completed one."""
    abort_step_capture()
    complete_step_capture()
    assert [batch.step for batch in recorder.timing.drain()] == [1]


def test_recording_off_discards(recorder):
    """With recording off a completed capture is discarded, and what was published before still drains."""
    complete_step_capture()
    recorder.recording = False
    open_ = recorder.active
    complete_step_capture()
    assert open_.detached
    assert [batch.step for batch in recorder.timing.drain()] == [1]
    assert recorder.steps == 1


def test_full_queues_drop_what_comes_in():
    """A full queue keeps what it has, drops what comes in and counts it; the queues fill on their own."""
    recorder = Recorder(capacity=2)
    for step in range(3):
        if step:
            recorder.active.record(None, 1, 2)
        recorder.complete(recorder.active, step)
    assert [batch.step for batch in recorder.timing.drain()] == [1, 2]
    assert [memory.step for memory in recorder.memory.drain()] == [2, 3]
    assert (recorder.timing.dropped, recorder.memory.dropped) == (1, 0)


def test_unknown_sizes_make_the_sum_unknown(recorder):
    """Samples of a step are unknown when one of its batches did not show them."""
    recorder.active.batches += [(7, 4, None), (7, None, None)]
    complete_step_capture()
    [batch] = recorder.timing.drain()
    assert (batch.microbatches, batch.samples, batch.tokens) == (2, None, None)


def test_drain_is_woken(recorder):
    """Each publication calls the hook that wakes the drain."""
    calls = []
    recorder.on_publish = lambda: calls.append(len(recorder.timing))
    complete_step_capture()
    complete_step_capture()
    assert calls == [1, 2]


def test_other_process_publishes_nothing(recorder):
    """A recorder that finds itself in a forked child publishes nothing."""
    child = os.fork()
    if child == 0:
        complete_step_capture()
        os._exit(len(recorder.timing))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    complete_step_capture()
    assert len(recorder.timing) == 1


def test_without_recorder():
    """The module's functions are harmless when nothing records."""
    complete_step_capture()
    abort_step_capture()
