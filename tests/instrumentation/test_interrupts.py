"""Ctrl-C in a notebook: it may come at any place, and the training that follows is seen whole."""

from __future__ import annotations

import gc
import sys

import pytest
import torch
from tests.support.training import finish, loader, model, update

from stepmeter.capture.facts import step_facts
from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import install, uninstall

ROOMS = ("/stepmeter/instrumentation/", "/stepmeter/capture/")
STEP = {"input_wait": 1, "forward": 1, "backward": 1, "optimizer": 1}
PARTS = 4
"""Each part takes every fourth place, so that they can run beside each other."""


class CtrlC:
    """Raises KeyboardInterrupt at the n-th place in our code where Python looks for signals: around calls.

    Attributes:
        places: How many such places have been passed.
    """

    def __init__(self, at):
        self.places = 0
        self._at = at

    def __enter__(self):
        sys.setprofile(self._look)
        return self

    def __exit__(self, kind, *_):
        sys.setprofile(None)
        return kind is KeyboardInterrupt

    def _look(self, frame, event, _):
        if event != "c_call" and any(room in frame.f_code.co_filename for room in ROOMS):
            self.places += 1
            if self.places == self._at:
                sys.setprofile(None)
                raise KeyboardInterrupt


def interrupted(at):
    """Train, be interrupted in the next training, train again; gives the last steps, faults, and places passed."""
    recorder, faults = Recorder(), []
    recorder.on_fault = lambda kind, error: faults.append((kind, error))
    install(recorder)
    try:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for batch in loader(2):
            update(net, optimizer, batch)
        with CtrlC(at) as ctrl_c:
            for batch in loader(2):
                update(net, optimizer, batch)
        for batch in loader(4):
            update(net, optimizer, batch)
        finish(recorder)
        last = recorder.timing.drain()[-3:]  # the step in which it came may be lost, and its number with it
        phases = [{name: facts.count for name, facts in step_facts(batch).phases.items()} for batch in last]
        return phases, faults, ctrl_c.places
    finally:
        uninstall()


@pytest.mark.parametrize("part", range(PARTS))
def test_an_interrupt_at_any_place_is_got_over(part):
    """Wherever Ctrl-C comes, the steps of the next training are whole from the second on, and nothing is said."""
    gc.freeze()
    at = part + 1
    while True:
        steps, faults, places = interrupted(at)
        if places < at:
            break
        assert (steps, faults) == ([STEP] * 3, []), f"place {at}"
        at += PARTS
    assert at > 100
