"""Where one step ends and the next begins, decided on the training thread from what it does.

A step opens with its first training work and becomes closable with an update. It ends at the first of: the next
fetch from a loader that it has fetched from (from any loader when it fetched from none, or under no_grad), a loader's
end, an evaluation, the repeat of an optimizer that has stepped in it (then the boundary lies at the end of the last
optimizer call), the end of the program. Once a program says itself where its steps are, nothing else ends one.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final

from stepmeter.capture.region import Region
from stepmeter.conventions.phases import OPTIMIZER, PHASES
from stepmeter.instrumentation.closing import (
    BACKWARD_INDEX,
    FAILURE,
    FORWARD_INDEX,
    ODD_FORWARD,
    UPDATE,
)
from stepmeter.instrumentation.succession import Succession
from stepmeter.instrumentation.undecided import Undecided

_OPTIMIZER: Final = PHASES.index(OPTIMIZER)

_code: Final = itemgetter(0)
_USUAL: Final = frozenset(
    {
        (Undecided.INPUT_WAIT, FORWARD_INDEX, BACKWARD_INDEX, _OPTIMIZER),
        (Undecided.INPUT_WAIT, FORWARD_INDEX, BACKWARD_INDEX, _OPTIMIZER, _OPTIMIZER),
        (Undecided.INPUT_WAIT, Undecided.COPY, FORWARD_INDEX, BACKWARD_INDEX, _OPTIMIZER),
    }
)

_REGION_LIMIT: Final = 100_000
"""Regions of one step; a program that calls a root in training mode and never updates would fill memory otherwise."""


class Boundaries(Succession):
    """Turns the events of the training thread into steps.

    In a real loop, with cold caches, a Python call costs about 1 µs. So the patches only note what happens, and it is
    looked at where a step may end: all at once for a step of a plain loop, event by event for any other.
    """

    __slots__ = ()

    def flush(self) -> None:
        """Look at what has happened, event by event."""
        events, fetched, updates = self.log[:], iter(self.fetched[:]), iter(self.updates[:])
        self.log.clear()
        self.fetched.clear()
        self.updates.clear()
        self.clean = False
        for event in events:
            code = event[0]
            if code == FORWARD_INDEX:
                self.forward_ended(event, grad=True, training=True)
            elif code == ODD_FORWARD:
                self.forward_ended(*event[1:])
            elif code == BACKWARD_INDEX:
                self.backward_ended(event)
            elif code == _OPTIMIZER:
                self.optimizer_ended(event, next(updates))
            elif code == UPDATE:
                self.updated(next(updates), event[2])
            elif code == Undecided.INPUT_WAIT:
                self._undecided.fetched(event, *next(fetched))
            elif code == FAILURE:
                self._failed = not self.explicit
            else:
                self.copied(event)

    def publish_plain(self, loader: int, start_ns: int) -> bool:
        """Publish a step of one fetch, as most are, without a look at each event; False if it is another kind.

        The capture stays as it is: there was nothing in it.

        Args:
            loader: The loader that is asked for a batch, after an update.
            start_ns: When, monotonic.

        Returns:
            Whether it was published; else nothing has been done.
        """
        log, recorder = self.log, self.recorder
        codes = tuple(map(_code, log))
        if codes not in _USUAL and not _is_simple(codes):
            return False
        batch, no_grad = self.fetched[0]
        if batch[0] != loader or no_grad:
            return False
        if not (self.clean or self._is_clean()) or self.watching or recorder.steps >= self.look_at:
            return False
        regions = log[:]
        device = None if self.timer is None else self.timer.ended()
        log.clear()
        self.fetched.clear()
        self.updates.clear()
        self.clean = True
        self.ended_ns = start_ns
        recorder.publish(regions[0][1], start_ns, regions, (1, batch[1], batch[2]), device)
        return True

    def _is_clean(self) -> bool:
        """Whether nothing is known of the step in progress but what is in the log."""
        undecided = self._undecided
        return not (
            self.explicit
            or self.cut is not None
            or self.optimizers
            or self.memory is not None
            or self.silent.unheard
            or undecided.waiting
            or undecided.doubtful
            or self._capture.regions
            or self._capture.warmup
            or self._failed
            or self._stepped
        )

    # ── input ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fetch_begins(self, loader: int, start_ns: int, no_grad: bool) -> None:
        """A loader, named by its number, is asked for a batch."""
        if self.log:
            self.flush()
        if self.optimizers:
            self.optimizers.clear()  # an optimizer that raised left its entry; no optimizer fetches
        undecided = self._undecided
        if undecided.doubtful:
            self._settle()
        if self.silent.unheard:
            self.notice_updates()
        if self.cut is not None:
            batches = self._capture.batches
            if no_grad or not batches or loader in [batch[0] for batch in batches]:
                if undecided.waiting:
                    self._capture.regions += undecided.take_copies()
                self._close_at(start_ns)
        elif undecided.waiting:
            undecided.take_copies()  # made before the step's first fetch: nobody's
        if self._failed:  # the program goes on with another batch
            undecided.waiting.clear()
            if self.cut is None:
                self._begin(self.recorder.abort(self._capture))

    def loader_ended(self, loader: int, start_ns: int) -> None:
        """A loader had no further batch; those of its that no forward has used were not for training."""
        self.flush()
        if self._undecided.doubtful:
            self._settle()
        if self.cut is not None:
            self._close_at(start_ns)
        if self._undecided.waiting:
            self._undecided.drop_loader(loader)
        self.ended_ns = 0  # the loop is over, as far as can be seen

    def copied(self, region: Region) -> None:
        """A batch was copied to the device."""
        capture = self._capture
        if capture.regions and self.cut is None and not self._undecided.waiting:
            capture.regions.append(region)
        else:
            self._undecided.copied(region)

    def _settle(self) -> None:
        """The forwards in doubt have been an evaluation."""
        self._undecided.settle(self._evaluated)

    def _evaluated(self, start_ns: int, end_ns: int, pending: Any) -> None:
        """An evaluation has run: it ends a closable step, and its fetches are nobody's."""
        if self.cut is not None:
            self._close_at(start_ns, pending and pending[0])
        self._undecided.doubt(start_ns, end_ns)
        if self.memory is not None:
            self.memory.dirty = True

    # ── compute ─────────────────────────────────────────────────────────────────────────────────────────────────

    def forward_begins(self, grad: bool) -> None:
        """An outermost call of a root begins, on a device."""
        if self.memory is None:
            return
        self.flush()
        capture = self._capture
        if self.cut is not None and not self._snapshot_taken and not (grad and capture.batches):
            self.memory.closed(capture)  # what follows may belong to nobody or to the next step
            self._snapshot_taken = True
        if grad and self.memory.dirty and not capture.regions:
            self.memory.opened()

    def forward_ended(self, region: Region, grad: bool, training: bool) -> None:
        """A root returned, with gradients on or off, in training mode or not."""
        undecided = self._undecided
        if not grad:
            # training mode: a GAN's generator or a teacher, which run without gradients inside a step
            if not training or undecided.fetched_without_grad():
                self._evaluated(*region[1:])
        elif training:
            capture = self._capture
            if undecided.waiting or undecided.doubtful:
                undecided.adopt(capture, first=self.cut is None and not self.recorder.steps)
            capture.regions.append(region)
            if len(capture.regions) > _REGION_LIMIT:
                self._begin(self.recorder.abort(capture))
        else:  # an evaluation that forgot no_grad, or training with frozen statistics: a backward decides
            undecided.forward_in_doubt(region)

    def backward_ended(self, region: Region) -> None:
        """Gradients came: what was undecided has been training."""
        capture, undecided = self._capture, self._undecided
        if undecided.waiting or undecided.doubtful:
            undecided.adopt(capture, first=self.cut is None and not self.recorder.steps)
            capture.regions += undecided.take_forwards()
        capture.regions.append(region)
        if self.cut is not None and self.cut[0] > region[1]:  # parameters were updated in it, one by one
            self.cut = (region[2], len(capture.regions), len(capture.batches))

    def failed(self) -> None:
        """An outermost forward or backward raised."""
        self.in_forward = self.in_backward = False
        self.log.append((FAILURE,))

    # ── updates ─────────────────────────────────────────────────────────────────────────────────────────────────

    def optimizer_repeats(self, optimizer: Any) -> None:
        """`Optimizer.step` is called, while updates are known that may have been this step's or one has raised."""
        if optimizer in self.updates:
            self.flush()
        open_, seen = self.optimizers, len(self.log)
        if open_ and any(entry[0] is optimizer and entry[2] != seen for entry in open_):
            open_.clear()  # it raised last time; a `super().step()` begins before anything else happens
        if self.cut is not None:
            self.update_begins(optimizer)

    def optimizer_ended(self, region: Region, optimizer: Any) -> None:
        """An outermost `Optimizer.step` has been made."""
        if self.silent.unheard:
            self.silent.heard(optimizer)
        self._capture.regions.append(region)
        self.updated(optimizer, region[2])

    def notice_updates(self) -> None:
        """A fetch or a forward begins: have parameters changed since the last backward?"""
        self.flush()
        changed = self.silent.changed()
        regions = self._capture.regions
        if regions and regions[-1][0] == BACKWARD_INDEX:
            end_ns = regions[-1][2]
            for optimizer in changed:
                self.update_begins(optimizer)
                self.updated(optimizer, end_ns)

    def update_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step, or a scaler to decide on it: a repeat ends the step before."""
        if self.updates:
            self.flush()
        if self.cut is not None and not self.optimizers and optimizer in self._stepped:
            self._close_at_cut(self.cut)


def _is_simple(codes: tuple[int, ...]) -> bool:
    """Whether a step fetches once, at its beginning, trains, and ends with an update."""
    if not codes or codes[0] != Undecided.INPUT_WAIT or codes[-1] != _OPTIMIZER or min(codes) < 0:
        return False
    return codes.count(Undecided.INPUT_WAIT) == 1 and FORWARD_INDEX in codes and BACKWARD_INDEX in codes
