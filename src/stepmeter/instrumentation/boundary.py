"""Where one step ends and the next begins, decided on the training thread from what it does.

A step opens with its first training work and becomes closable with an update. It ends at the first of: the next
fetch from a loader that it has fetched from (from any loader when it fetched from none, or under no_grad), a loader's
end, an evaluation, the repeat of an optimizer that has stepped in it (then the boundary lies at the end of the last
optimizer call), the end of the program.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
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


class Cut:
    """How much of the capture lies before the end of the last update.

    Attributes:
        end_ns: End of the last outermost optimizer call.
        regions: Regions before it.
        batches: Batches before it.
    """

    __slots__ = ("batches", "end_ns", "regions")

    def __init__(self, end_ns: int, regions: int, batches: int) -> None:
        self.end_ns = end_ns
        self.regions = regions
        self.batches = batches


class Boundaries:
    """Turns the events of the training thread into steps.

    Times are monotonic ns. A plain object with slots: measured, it costs a microsecond a step more than closures over
    cells and can be read.

    Attributes:
        recorder: Where steps go.
        owner: Identity of the thread that trains, 0 when nothing is recorded; other threads' work is nobody's step.
        before_fetch: Called before each fetch, in nobody's time.
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
        "strict",
    )

    def __init__(self, recorder: Recorder, *, strict: bool = False) -> None:
        self.recorder = recorder
        self.owner = threading.get_ident()
        self.before_fetch: Callable[[], None] | None = None
        self.on_close: Callable[[bool], None] | None = None
        self.strict = strict
        self._reset()

    def _reset(self) -> None:
        """Forget what is known of the step in progress; its capture stays."""
        self._forwards = 0
        self._backwards = 0
        self._optimizers: list[tuple[Any, int, int]] = []
        self._undecided: list[Fetch] = []
        self._tentative: list[Region] = []
        self._begin(self.recorder.active)

    def _follow(self) -> None:
        """Go on with the active capture when a trainer or the user has ended ours."""
        if self._capture.detached:
            self._begin(self.recorder.active)

    def _begin(self, capture: StepCapture) -> None:
        self._capture = capture
        self._cut: Cut | None = None
        self._stepped: list[Any] = []
        self._failed = False

    def fault(self, kind: str, error: BaseException) -> None:
        """Give up the step in progress after a failure of ours, and report it.

        Args:
            kind: What was being done.
            error: What was raised.
        """
        self.recorder.abort(self.recorder.active)
        self._reset()
        self.recorder.fault(kind, error)
        if self.strict:
            raise error

    def takes_over(self) -> bool:
        """Whether the calling thread, about to call a root module, becomes the one that trains.

        Returns:
            True when the thread that trained is gone or between two steps; that one's last step is published.
        """
        if not self.owner or self._forwards or self._backwards:
            return False  # checkpointing runs forwards again on autograd's own threads
        between = self._cut is not None or not self._capture.regions
        if not between and any(thread.ident == self.owner for thread in threading.enumerate()):
            return False
        self.finish(monotonic_ns())
        self.recorder.abort(self._capture)
        self._reset()
        self.owner = threading.get_ident()
        return True

    # ── input ───────────────────────────────────────────────────────────────────────────────────────────────

    def fetch_begins(self, loader: int, start_ns: int, *, no_grad: bool) -> None:
        """A loader is asked for a batch.

        Args:
            loader: Identity of the loader.
            start_ns: When; the making of its iterator included.
            no_grad: Whether gradients are off.
        """
        self._follow()
        self._optimizers.clear()  # an optimizer that raised left its entry; no optimizer fetches
        if self._tentative:
            self._drop_undecided()
        batches = self._capture.batches
        if self._cut is not None and (no_grad or not batches or _contains(batches, loader)):
            self._close(self._earliest(start_ns))
        if self._failed:  # the program goes on with another batch
            self._undecided.clear()
            self._tentative.clear()
            if self._cut is None:
                self._begin(self.recorder.abort(self._capture))

    def fetch_ended(self, start_ns: int, end_ns: int, batch: Batch, *, no_grad: bool) -> None:
        """A batch came; the next forward decides whose it is.

        Args:
            start_ns: When it was asked for.
            end_ns: When it came.
            batch: What it shows of itself.
            no_grad: Whether gradients are off.
        """
        undecided = self._undecided
        if len(undecided) >= _UNDECIDED_LIMIT:
            del undecided[: _UNDECIDED_LIMIT // 2]
        undecided.append((start_ns, end_ns, no_grad, batch))

    def loader_ended(self, loader: int, start_ns: int) -> None:
        """A loader had no further batch; batches of its that no forward has used were not for training.

        Args:
            loader: Identity of the loader.
            start_ns: When it was asked.
        """
        if self._tentative:
            self._drop_undecided()
        if self._cut is not None:
            self._close(self._earliest(start_ns))
        self._undecided = [fetch for fetch in self._undecided if fetch[3][0] != loader]

    # ── forward ─────────────────────────────────────────────────────────────────────────────────────────────

    def forward_begins(self) -> bool:
        """A root module is called.

        Returns:
            Whether the call is an outermost one on the thread that trains; then `forward_ended` must follow.
        """
        if self._forwards or self._backwards:
            return False
        self._follow()
        self._forwards = 1
        return True

    def forward_ended(self, start_ns: int, end_ns: int, *, grad: bool, training: bool) -> None:
        """A root module returned.

        Args:
            start_ns: When it was called.
            end_ns: When it returned.
            grad: Whether gradients were on.
            training: Whether the module is in training mode.
        """
        self._forwards = 0
        region = (_FORWARD, start_ns, end_ns, None)
        if not grad:
            self._forward_without_grad(start_ns, training=training)
        elif training:
            if self._undecided:
                self._adopt()
            self._capture.regions.append(region)
            if len(self._capture.regions) > _REGION_LIMIT:
                self._begin(self.recorder.abort(self._capture))
        else:
            self._tentative.append(region)
            if len(self._tentative) > _UNDECIDED_LIMIT:
                del self._tentative[: _UNDECIDED_LIMIT // 2]

    def _forward_without_grad(self, start_ns: int, *, training: bool) -> None:
        """Tell an evaluation from a GAN's generator or a teacher, which run without gradients inside a step."""
        if training and not any(fetch[2] for fetch in self._undecided):
            return
        if self._cut is not None:
            self._close(self._earliest(start_ns))
        self._undecided.clear()
        self._tentative.clear()

    def forward_failed(self) -> None:
        """A root module raised."""
        self._forwards = 0
        self._failed = True

    # ── backward ────────────────────────────────────────────────────────────────────────────────────────────

    def backward_begins(self) -> bool:
        """Gradients are asked for.

        Returns:
            Whether the call is an outermost one; then `backward_ended` must follow.
        """
        if self._backwards:
            return False
        self._follow()
        self._backwards = 1
        return True

    def backward_ended(self, start_ns: int, end_ns: int) -> None:
        """Gradients came: what was undecided has been training.

        Args:
            start_ns: When they were asked for.
            end_ns: When they came.
        """
        self._backwards = 0
        if self._undecided:
            self._adopt()
        regions = self._capture.regions
        if self._tentative:
            regions += self._tentative
            self._tentative.clear()
        regions.append((_BACKWARD, start_ns, end_ns, None))

    def backward_failed(self) -> None:
        """Gradients did not come."""
        self._backwards = 0
        self._failed = True

    # ── optimizer ───────────────────────────────────────────────────────────────────────────────────────────

    def update_begins(self, optimizer: Any) -> None:
        """An optimizer is about to step, or a scaler to decide on it.

        Args:
            optimizer: Weak reference to the optimizer.
        """
        if self._cut is not None and not self._optimizers and optimizer in self._stepped:
            self._close_at_cut(self._cut)

    def optimizer_begins(self, optimizer: Any) -> None:
        """`Optimizer.step` is called.

        Args:
            optimizer: Weak reference to the optimizer.
        """
        self._follow()
        open_ = self._optimizers
        seen = len(self._capture.regions)
        if open_ and any(entry[0] is optimizer and entry[2] != seen for entry in open_):
            open_.clear()  # it raised last time; a `super().step()` begins before anything else happens
        self.update_begins(optimizer)
        open_.append((optimizer, monotonic_ns(), len(self._capture.regions)))

    def optimizer_ended(self, optimizer: Any) -> None:
        """`Optimizer.step` returned.

        Args:
            optimizer: Weak reference to the optimizer.
        """
        end_ns = monotonic_ns()
        open_ = self._optimizers
        while open_:
            entry = open_.pop()
            if entry[0] is optimizer:
                if not open_:
                    self._capture.regions.append((_OPTIMIZER, entry[1], end_ns, None))
                    self.updated(optimizer, end_ns)
                return

    def updated(self, optimizer: Any, end_ns: int) -> None:
        """An update has been made, or skipped by a scaler: the step is closable.

        Args:
            optimizer: Weak reference to the optimizer.
            end_ns: When.
        """
        self._stepped.append(optimizer)
        capture = self._capture
        self._cut = Cut(end_ns, len(capture.regions), len(capture.batches))

    def has_stepped(self, optimizer: Any) -> bool:
        """Whether an optimizer has stepped in the step in progress.

        Args:
            optimizer: Weak reference to the optimizer.

        Returns:
            True after `updated`, until the step ends.
        """
        return optimizer in self._stepped

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────

    def finish(self, end_ns: int) -> None:
        """Publish the last step if it can be closed, at the end of the program.

        Args:
            end_ns: Now; a step without a loader ends with its last update instead.
        """
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
        capture = self._capture
        regions, batches = capture.regions[cut.regions :], capture.batches[cut.batches :]
        del capture.regions[cut.regions :], capture.batches[cut.batches :]
        self._close(cut.end_ns)
        self._capture.regions += regions
        self._capture.batches += batches

    def _close(self, end_ns: int) -> None:
        capture, recorder = self._capture, self.recorder
        phases = [region[0] for region in capture.regions]
        if _FORWARD in phases or _BACKWARD in phases:
            if self.on_close is not None:
                self.on_close(_FORWARD not in phases)
            self._begin(recorder.complete(capture, end_ns))
        else:  # an optimizer has only initialised its state
            self._begin(recorder.abort(capture))


def _contains(batches: list[Batch], loader: int) -> bool:
    return any(batch[0] == loader for batch in batches)


def reference(optimizer: Any) -> Any:
    """Name an optimizer without keeping it alive.

    Args:
        optimizer: A `torch.optim.Optimizer`.

    Returns:
        Its weak reference, the same object on each call; ids are reused, references are not.
    """
    return weakref.ref(optimizer)
