"""Where one step ends and the next begins, decided on the training thread from what it does.

A step opens with its first training work and becomes closable with an update. It ends at the first of: the next
fetch from a loader that it has fetched from (from any loader when it fetched from none, or under no_grad), a loader's
end, an evaluation, the repeat of an optimizer that has stepped in it (then the boundary lies at the end of the last
optimizer call), the end of the program. Once a program says itself where its steps are, nothing else ends one.
"""

from __future__ import annotations

import threading
from threading import get_ident
from typing import Any, Final

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.step import Batch
from stepmeter.conventions.phases import OPTIMIZER, PHASES
from stepmeter.instrumentation.closing import BACKWARD_INDEX, FORWARD_INDEX, Closing
from stepmeter.instrumentation.undecided import Undecided

_OPTIMIZER: Final = PHASES.index(OPTIMIZER)

_REGION_LIMIT: Final = 100_000
"""Regions of one step; a program that calls a root in training mode and never updates would fill memory otherwise."""


class Boundaries(Closing):
    """Turns the events of the training thread into steps.

    What happens on each step is written flat: in a real loop, with cold caches, a Python call costs about 1 µs.
    """

    __slots__ = ()

    def takes_over(self) -> bool:
        """Whether the calling thread becomes the one that trains: the other is gone, or between two steps."""
        if not self.owner or self.explicit or self.in_forward or self.in_backward:
            return False  # checkpointing runs forwards again on autograd's own threads
        between = self._cut is not None or not self._capture.regions
        if not between and any(thread.ident == self.owner for thread in threading.enumerate()):
            return False
        self.finish(monotonic_ns())
        self.recorder.abort(self._capture)
        self._reset()
        self.owner = get_ident()
        return True

    # ── input ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fetch_begins(self, loader: int, start_ns: int, no_grad: bool) -> None:
        """A loader, named by its number, is asked for a batch."""
        if self._optimizers:
            self._optimizers.clear()  # an optimizer that raised left its entry; no optimizer fetches
        undecided = self._undecided
        if undecided.doubtful:
            self._settle()
        if self.silent.unheard:
            self.notice_updates()
        if self._cut is not None:
            batches = self._capture.batches
            if no_grad or not batches or loader in [batch[0] for batch in batches]:
                if undecided.waiting:
                    self._capture.regions += undecided.take_copies()
                self._close_at(start_ns)
        elif undecided.waiting:
            undecided.take_copies()  # made before the step's first fetch: nobody's
        if self._failed:  # the program goes on with another batch
            undecided.waiting.clear()
            if self._cut is None:
                self._begin(self.recorder.abort(self._capture))

    def fetch_ended(self, start_ns: int, end_ns: int, pending: Any, batch: Batch, no_grad: bool) -> None:
        """A batch came; the next forward decides whether it is for training."""
        self._undecided.fetched(start_ns, end_ns, pending, batch, no_grad)

    def loader_ended(self, loader: int, start_ns: int) -> None:
        """A loader had no further batch; those of its that no forward has used were not for training."""
        if self._undecided.doubtful:
            self._settle()
        if self._cut is not None:
            self._close_at(start_ns)
        if self._undecided.waiting:
            self._undecided.drop_loader(loader)

    def copied(self, start_ns: int, end_ns: int, pending: Any) -> None:
        """A batch was copied to the device."""
        capture = self._capture
        if capture.regions and self._cut is None and not self._undecided.waiting:
            capture.regions.append((Undecided.COPY, start_ns, end_ns, pending))
        else:
            self._undecided.copied(start_ns, end_ns, pending)

    def _settle(self) -> None:
        """The forwards in doubt have been an evaluation."""
        self._undecided.settle(self._evaluated)

    def _evaluated(self, start_ns: int, end_ns: int) -> None:
        """An evaluation has run: it ends a closable step, and its fetches are nobody's."""
        if self._cut is not None:
            self._close_at(start_ns)
        self._undecided.doubt(start_ns, end_ns)
        if self.memory is not None:
            self.memory.dirty = True

    # ── compute ─────────────────────────────────────────────────────────────────────────────────────────────────

    def forward_begins(self, grad: bool) -> None:
        """An outermost call of a root begins, on a device."""
        if self.memory is None:
            return
        capture = self._capture
        if self._cut is not None and not self._snapshot_taken and not (grad and capture.batches):
            self.memory.closed(capture)  # what follows may belong to nobody or to the next step
            self._snapshot_taken = True
        if grad and self.memory.dirty and not capture.regions:
            self.memory.opened()

    def forward_ended(self, start_ns: int, end_ns: int, pending: Any, grad: bool, training: bool) -> None:
        """A root returned, with gradients on or off, in training mode or not."""
        self.in_forward = False
        undecided = self._undecided
        if not grad:
            # training mode: a GAN's generator or a teacher, which run without gradients inside a step
            if not training or undecided.fetched_without_grad():
                self._evaluated(start_ns, end_ns)
        elif training:
            capture = self._capture
            if undecided.waiting or undecided.doubtful:
                undecided.adopt(capture, first=self._cut is None and not self.recorder.steps)
            capture.regions.append((FORWARD_INDEX, start_ns, end_ns, pending))
            if len(capture.regions) > _REGION_LIMIT:
                self._begin(self.recorder.abort(capture))
        else:  # an evaluation that forgot no_grad, or training with frozen statistics: a backward decides
            undecided.forward_in_doubt((FORWARD_INDEX, start_ns, end_ns, pending))

    def backward_ended(self, start_ns: int, end_ns: int, pending: Any) -> None:
        """Gradients came: what was undecided has been training."""
        self.in_backward = False
        capture, undecided = self._capture, self._undecided
        if undecided.waiting or undecided.doubtful:
            undecided.adopt(capture, first=self._cut is None and not self.recorder.steps)
            capture.regions += undecided.take_forwards()
        capture.regions.append((BACKWARD_INDEX, start_ns, end_ns, pending))

    def failed(self) -> None:
        """An outermost forward or backward raised."""
        self.in_forward = self.in_backward = False
        self._failed = not self.explicit

    # ── updates ─────────────────────────────────────────────────────────────────────────────────────────────────

    def optimizer_begins(self, optimizer: Any) -> None:
        """`Optimizer.step` is called."""
        open_, seen = self._optimizers, len(self._capture.regions)
        if open_ and any(entry[0] is optimizer and entry[2] != seen for entry in open_):
            open_.clear()  # it raised last time; a `super().step()` begins before anything else happens
        if self._cut is not None:
            self.update_begins(optimizer)
            seen = len(self._capture.regions)
        timer = self.timer
        open_.append((optimizer, monotonic_ns(), seen, None if timer is None else timer.mark()))

    def optimizer_ended(self, optimizer: Any) -> None:
        """`Optimizer.step` returned."""
        end_ns = monotonic_ns()
        open_ = self._optimizers
        while open_:
            entry = open_.pop()
            if entry[0] is optimizer:
                if self.silent.unheard:
                    self.silent.heard(optimizer)
                if not open_:
                    pending = None if entry[3] is None or self.timer is None else self.timer.pair(entry[3])
                    self._capture.regions.append((_OPTIMIZER, entry[1], end_ns, pending))
                    self.updated(optimizer, end_ns)
                return

    def notice_updates(self) -> None:
        """A fetch or a forward begins: have parameters changed since the last backward?"""
        changed = self.silent.changed()
        regions = self._capture.regions
        if regions and regions[-1][0] == BACKWARD_INDEX:
            end_ns = regions[-1][2]
            for optimizer in changed:
                self.update_begins(optimizer)
                self.updated(optimizer, end_ns)

    def update_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step, or a scaler to decide on it: a repeat ends the step before."""
        if self._cut is not None and not self._optimizers and optimizer in self._stepped:
            self._close_at_cut(self._cut)
