"""Where one step ends and the next begins, decided on the training thread from what it does.

A step opens with its first training work and becomes closable with an update. It ends at the first of: the next
fetch from a loader that it has fetched from (from any loader when it fetched from none, or under no_grad), a loader's
end, an evaluation, the repeat of an optimizer that has stepped in it (then the boundary lies at the end of the last
optimizer call), the end of the program.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.step import Batch, Recorder, Region, StepCapture
from stepmeter.conventions.phases import BACKWARD, FORWARD, INPUT_WAIT, OPTIMIZER, PHASES

_INPUT_WAIT: Final = PHASES.index(INPUT_WAIT)
_FORWARD: Final = PHASES.index(FORWARD)
_BACKWARD: Final = PHASES.index(BACKWARD)
_OPTIMIZER: Final = PHASES.index(OPTIMIZER)

_UNDECIDED_LIMIT: Final = 1024
"""Fetches that may wait for a forward; a program that only reads a loader would fill memory otherwise."""

_REGION_LIMIT: Final = 100_000
"""Regions of one step; a program that calls a root in training mode and never updates would fill memory otherwise."""

Fetch = tuple[int, int, bool, Batch]
"""(start, end, whether gradients were off, batch); times monotonic in ns."""

Cut = tuple[int, int, int]
"""(end of the last outermost optimizer call, regions before it, batches before it)."""


class Boundaries:
    """Turns the events of the training thread into steps.

    Every time is monotonic, in ns. An optimizer is named by its weak reference: ids are reused, references are not.
    What happens on each step is written flat: in a real loop, with cold caches, a Python call costs about 1 µs.

    Attributes:
        recorder: Where steps go.
        owner: Identity of the thread that trains, 0 when nothing is recorded; other threads' work is nobody's step.
        stale: Whether roots are to be looked for at the next fetch.
        watching: Whether `on_close` is wanted for each step.
        before_fetch: Called before a fetch when stale, in nobody's time.
        on_close: Called before a step is published with whether it had a backward without a forward.
        strict: Whether failures of ours are raised into the program; for tests.
    """

    __slots__ = (
        "_backwards",
        "_capture",
        "_cut",
        "_failed",
        "_forwards",
        "_optimizers",
        "_stepped",
        "_tentative",
        "_undecided",
        "before_fetch",
        "on_close",
        "owner",
        "recorder",
        "stale",
        "strict",
        "watching",
    )

    def __init__(self, recorder: Recorder, *, strict: bool = False) -> None:
        self.recorder = recorder
        self.owner = get_ident()
        self.stale = True
        self.watching = False
        self.before_fetch: Callable[[], None] = lambda: None
        self.on_close: Callable[[bool], None] = lambda _missed_forward: None
        self.strict = strict
        self._reset()

    def _reset(self) -> None:
        """Forget what is known of the step in progress; its capture stays."""
        self._forwards = self._backwards = False
        self._optimizers: list[tuple[Any, int, int]] = []
        self._undecided: list[Fetch] = []
        self._tentative: list[Region] = []
        self._begin(self.recorder.active)

    def _begin(self, capture: StepCapture) -> None:
        self._capture = capture
        self._cut: Cut | None = None
        self._stepped: list[Any] = []
        self._failed = False

    def fault(self, kind: str, error: BaseException) -> None:
        """Give up the step in progress after a failure of ours, and report it."""
        self.recorder.abort(self.recorder.active)
        self._reset()
        self.recorder.fault(kind, error)
        if self.strict:
            raise error

    def _takes_over(self) -> bool:
        """Whether the calling thread becomes the one that trains: the other is gone, or between two steps."""
        if not self.owner or self._forwards or self._backwards:
            return False  # checkpointing runs forwards again on autograd's own threads
        between = self._cut is not None or not self._capture.regions
        if not between and any(thread.ident == self.owner for thread in threading.enumerate()):
            return False
        self.finish(monotonic_ns())
        self.recorder.abort(self._capture)
        self._reset()
        self.owner = get_ident()
        return True

    def fetch_begins(self, loader: int, start_ns: int, no_grad: bool) -> None:
        """A loader, named by its id, is asked for a batch."""
        if self._capture.detached:
            self._begin(self.recorder.active)  # a trainer or the user has ended it
        if self._optimizers:
            self._optimizers.clear()  # an optimizer that raised left its entry; no optimizer fetches
        if self._tentative:
            self._drop_undecided()
        if self._cut is not None:
            batches = self._capture.batches
            if no_grad or not batches or loader in [batch[0] for batch in batches]:
                self._close(self._earliest(start_ns))
        if self._failed:  # the program goes on with another batch
            self._undecided.clear()
            if self._cut is None:
                self._begin(self.recorder.abort(self._capture))

    def fetch_ended(self, start_ns: int, end_ns: int, batch: Batch, no_grad: bool) -> None:
        """A batch came; the next forward decides whether it is for training."""
        undecided = self._undecided
        if len(undecided) >= _UNDECIDED_LIMIT:
            del undecided[: _UNDECIDED_LIMIT // 2]
        undecided.append((start_ns, end_ns, no_grad, batch))

    def loader_ended(self, loader: int, start_ns: int) -> None:
        """A loader had no further batch; those of its that no forward has used were not for training."""
        if self._tentative:
            self._drop_undecided()
        if self._cut is not None:
            self._close(self._earliest(start_ns))
        self._undecided = [fetch for fetch in self._undecided if fetch[3][0] != loader]

    def forward_begins(self) -> bool:
        """A root is called; True for an outermost call of the thread that trains: its end or failure follows."""
        if (get_ident() != self.owner and not self._takes_over()) or self._forwards or self._backwards:
            return False
        if self._capture.detached:
            self._begin(self.recorder.active)
        self._forwards = True
        return True

    def forward_ended(self, start_ns: int, end_ns: int, grad: bool, training: bool) -> None:
        """A root returned, with gradients on or off, in training mode or not."""
        self._forwards = False
        if not grad:
            self._forward_without_grad(start_ns, training)
        elif training:
            if self._undecided:
                self._adopt()
            regions = self._capture.regions
            regions.append((_FORWARD, start_ns, end_ns, None))
            if len(regions) > _REGION_LIMIT:
                self._begin(self.recorder.abort(self._capture))
        else:  # an evaluation that forgot no_grad, or training with frozen statistics: a backward decides
            self._tentative.append((_FORWARD, start_ns, end_ns, None))
            if len(self._tentative) > _UNDECIDED_LIMIT:
                del self._tentative[: _UNDECIDED_LIMIT // 2]

    def _forward_without_grad(self, start_ns: int, training: bool) -> None:
        """Tell an evaluation from a GAN's generator or a teacher, which run without gradients inside a step."""
        if training and not any(fetch[2] for fetch in self._undecided):
            return
        if self._cut is not None:
            self._close(self._earliest(start_ns))
        self._undecided.clear()
        self._tentative.clear()

    def forward_failed(self) -> None:
        """A root raised."""
        self._forwards = False
        self._failed = True

    def backward_begins(self) -> bool:
        """Gradients are asked for; True for an outermost call: its end or failure follows."""
        if self._backwards:
            return False
        if self._capture.detached:
            self._begin(self.recorder.active)
        self._backwards = True
        return True

    def backward_ended(self, start_ns: int, end_ns: int) -> None:
        """Gradients came: what was undecided has been training."""
        self._backwards = False
        if self._undecided:
            self._adopt()
        regions = self._capture.regions
        if self._tentative:
            regions += self._tentative
            self._tentative.clear()
        regions.append((_BACKWARD, start_ns, end_ns, None))

    def backward_failed(self) -> None:
        """Gradients did not come."""
        self._backwards = False
        self._failed = True

    def optimizer_begins(self, optimizer: Any) -> None:
        """`Optimizer.step` is called."""
        if self._capture.detached:
            self._begin(self.recorder.active)
        open_ = self._optimizers
        if open_:
            seen = len(self._capture.regions)
            if any(entry[0] is optimizer and entry[2] != seen for entry in open_):
                open_.clear()  # it raised last time; a `super().step()` begins before anything else happens
        if self._cut is not None:
            self.update_begins(optimizer)
        open_.append((optimizer, monotonic_ns(), len(self._capture.regions)))

    def optimizer_ended(self, optimizer: Any) -> None:
        """`Optimizer.step` returned."""
        end_ns = monotonic_ns()
        open_ = self._optimizers
        while open_:
            entry = open_.pop()
            if entry[0] is optimizer:
                if not open_:
                    self._capture.regions.append((_OPTIMIZER, entry[1], end_ns, None))
                    self.updated(optimizer, end_ns)
                return

    def update_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step, or a scaler to decide on it: a repeat ends the step before."""
        if self._cut is not None and not self._optimizers and optimizer in self._stepped:
            self._close_at_cut(self._cut)

    def updated(self, optimizer: Any, end_ns: int) -> None:
        """An update has been made, or skipped by a scaler: the step is closable."""
        capture = self._capture
        self._stepped.append(optimizer)
        self._cut = (end_ns, len(capture.regions), len(capture.batches))

    def has_stepped(self, optimizer: Any) -> bool:
        """Whether an optimizer has stepped in the step in progress."""
        return optimizer in self._stepped

    def finish(self, end_ns: int) -> None:
        """Publish the last step if it can be closed; one without a loader ends with its last update."""
        cut = self._cut
        if cut is None or self._capture.detached:
            return
        if self._capture.batches:
            self._close(self._earliest(end_ns))
        else:
            self._close_at_cut(cut)

    def _earliest(self, now_ns: int) -> int:
        """Where work that turned out to be nobody's began, at the latest now."""
        return min(now_ns, self._undecided[0][0]) if self._undecided else now_ns

    def _adopt(self) -> None:
        capture = self._capture
        for start_ns, end_ns, _, batch in self._undecided:
            capture.regions.append((_INPUT_WAIT, start_ns, end_ns, None))
            capture.batches.append(batch)
        self._undecided.clear()

    def _drop_undecided(self) -> None:
        """What came before was an evaluation with gradients on."""
        if self._cut is not None:
            self._close(self._earliest(self._tentative[0][1]))
        self._undecided.clear()
        self._tentative.clear()

    def _close_at_cut(self, cut: Cut) -> None:
        end_ns, kept_regions, kept_batches = cut
        capture = self._capture
        regions, batches = capture.regions[kept_regions:], capture.batches[kept_batches:]
        del capture.regions[kept_regions:], capture.batches[kept_batches:]
        self._close(end_ns)
        self._capture.regions += regions
        self._capture.batches += batches

    def _close(self, end_ns: int) -> None:
        capture, recorder = self._capture, self.recorder
        phases = [region[0] for region in capture.regions]
        forward = _FORWARD in phases
        if not forward and _BACKWARD not in phases:  # an optimizer has only initialised its state
            self._begin(recorder.abort(capture))
            return
        if self.watching or not forward or not recorder.steps & recorder.steps + 1:
            self.on_close(not forward)
        self._begin(recorder.complete(capture, end_ns))
