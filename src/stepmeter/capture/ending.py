"""How a program ends a step itself."""

from __future__ import annotations

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.step import Recorder, StepCapture

_current: list[Recorder] = []


def use_recorder(recorder: Recorder | None) -> None:
    """Choose the recorder that `complete_step_capture` and `abort_step_capture` act on.

    Args:
        recorder: The process's recorder, or None for none.
    """
    _current[:] = [] if recorder is None else [recorder]


def complete_step_capture(capture: StepCapture | None = None) -> None:
    """Complete the step in progress: number it and publish its timing and its final memory snapshot.

    From the first call on the program alone says where its steps end.

    Args:
        capture: The capture to complete, so that a late caller can't end a later one; None = the active one.
    """
    for recorder in _current:
        end_step(recorder, capture or recorder.active, completed=True)


def abort_step_capture(capture: StepCapture | None = None) -> None:
    """Discard the step in progress; the step counter does not move.

    Args:
        capture: The capture to discard, so that a late caller can't discard a later one; None = the active one.
    """
    for recorder in _current:
        end_step(recorder, capture or recorder.active, completed=False)


def end_step(recorder: Recorder, capture: StepCapture, *, completed: bool, start_ns: int | None = None) -> None:
    """End a step where the program says so; never raises.

    Args:
        recorder: Whose step.
        capture: The step; harmless on one already detached.
        completed: Whether to publish it.
        start_ns: Where the program said that it begins, monotonic; None = it did not say.
    """
    end_ns = monotonic_ns()
    try:
        if recorder.on_end is not None:
            recorder.on_end(capture, end_ns, start_ns, completed)
        elif completed:
            recorder.complete(capture, end_ns, start_ns)
        else:
            recorder.abort(capture)
    except Exception as error:
        recorder.abort(capture)
        recorder.fault("step", error)
