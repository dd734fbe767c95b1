"""How a step ends: published where the program turned to the next one."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from stepmeter.capture.step import Batch, Recorder, StepCapture
from stepmeter.conventions.phases import BACKWARD, FORWARD, PHASES
from stepmeter.instrumentation.cuda import DeviceTimer
from stepmeter.instrumentation.memory import PeakMemory
from stepmeter.instrumentation.silent import SilentUpdates
from stepmeter.instrumentation.undecided import Undecided

FORWARD_INDEX: Final = PHASES.index(FORWARD)
BACKWARD_INDEX: Final = PHASES.index(BACKWARD)

Cut = tuple[int, int, int]
"""(end of the last outermost optimizer call, regions before it, batches before it)."""


Event = tuple[Any, ...]
"""A region as it is; (`ODD_FORWARD`, region, whether gradients were on, training mode); (`UPDATE`, start, end,
None); or (`FAILURE`,)."""

NOBODY: Final[tuple[int, Event, bool]] = (0, (), False)
"""No thread, and no forward of it."""

ODD_FORWARD: Final = -2
"""A forward without gradients or in evaluation mode."""

UPDATE: Final = -3
"""An optimizer has stepped within backward, whose time that is."""

FAILURE: Final = -1
"""A forward or backward raised."""

LOG_LIMIT: Final = 256
"""Events after which a forward looks at them, in a program that neither fetches nor updates."""

_FIRST_STEPS: Final = 12
"""Steps of which each is looked at: the process group, the device and DDP's measures come up in them."""

_EVERY_STEPS: Final = 100
"""Later steps between two looks; DDP measures one in so many."""


def next_look(steps: int) -> int:
    """When to look again at what changes seldom: who this process is, what DDP has measured.

    Args:
        steps: Steps completed so far.

    Returns:
        Steps completed at the next look.
    """
    return steps if steps < _FIRST_STEPS else steps - steps % _EVERY_STEPS + _EVERY_STEPS


class Closing:
    """The step in progress and the ways in which it ends.

    Every time is monotonic, in ns. An optimizer is named by its weak reference: ids are reused, references are not.

    Attributes:
        log: What has happened and has not been looked at yet.
        optimizers: Calls of `Optimizer.step` that run: weak reference, start, events before it, device event.
        fetched: Of each fetch in the log its batch and whether gradients were off.
        updates: Of each update in the log its optimizer.
        recorder: Where steps go.
        owner: Identity of the thread that trains, 0 when nothing is recorded; other threads' work is nobody's step.
        clean: Whether it is known that nothing is known of the step in progress but what is in the log.
        cut: Where a closable step may end, and None as long as no update has been looked at.
        ended_ns: Where the newest step ended; 0 before the first and after a loader's end.
        explicit: Whether the program says where its steps are.
        in_training_step: Whether a trainer says that whatever is called is forward, be it in training mode or not.
        elsewhere: The thread that made the newest training forward beside the owner's, that forward, and whether the
            owner has called the same module.
        fetching: Whether a loader is asked for a batch.
        in_forward: Whether an outermost forward runs.
        in_backward: Whether an outermost backward runs.
        timer: The device's clock; None where training is on the CPU.
        memory: The device's peaks; None likewise.
        silent: Updates of which no hook tells.
        stale: Whether roots are to be looked for at the next fetch.
        watching: Whether `on_close` is wanted for each step, since the roots are not settled.
        look_at: Steps completed from which on `on_close` is wanted whatever is known.
        before_fetch: Called before a fetch when stale, in nobody's time.
        on_close: Called before a step is published with whether it had a backward without a forward.
        strict: Whether failures of ours are raised into the program; for tests.
    """

    __slots__ = (
        "_capture",
        "_failed",
        "_snapshot_taken",
        "_stepped",
        "_undecided",
        "before_fetch",
        "clean",
        "cut",
        "elsewhere",
        "ended_ns",
        "explicit",
        "fetched",
        "fetching",
        "in_backward",
        "in_forward",
        "in_training_step",
        "log",
        "look_at",
        "memory",
        "on_close",
        "optimizers",
        "owner",
        "recorder",
        "silent",
        "stale",
        "strict",
        "timer",
        "updates",
        "watching",
    )

    def __init__(self, recorder: Recorder, *, strict: bool = False) -> None:
        self.recorder = recorder
        self.owner = get_ident()
        self.explicit = False
        self.silent = SilentUpdates()
        self.stale = True
        self.watching = False
        self.look_at = 0
        self.timer: DeviceTimer | None = None
        self.memory: PeakMemory | None = None
        self.before_fetch: Callable[[], None] = lambda: None
        self.on_close: Callable[[bool], None] = lambda _missed_forward: None
        self.strict = strict
        self.elsewhere = NOBODY
        self.ended_ns = 0
        # patches keep these lists: they are emptied, never replaced
        self.log: list[Event] = []
        self.fetched: list[tuple[Batch, bool]] = []
        self.updates: list[Any] = []
        self.optimizers: list[tuple[Any, int, int, Any]] = []
        self._reset()

    def _reset(self) -> None:
        """Forget what is known of the step in progress; its capture stays."""
        self.fetching = self.in_forward = self.in_backward = self.in_training_step = False
        self.log.clear()
        self.fetched.clear()
        self.updates.clear()
        self.optimizers.clear()
        self.clean = False
        self._undecided = Undecided()
        self._begin(self.recorder.active)

    def _begin(self, capture: StepCapture) -> None:
        self._capture = capture
        self.cut: Cut | None = None
        self._stepped: list[Any] = []
        self._failed = self._snapshot_taken = False

    def fault(self, kind: str, error: BaseException) -> None:
        """Give up the step in progress after a failure of ours, and report it."""
        self.recorder.abort(self.recorder.active)
        self._reset()
        self.recorder.fault(kind, error)
        if self.strict:
            raise error

    def flush(self) -> None:
        """Look at what has happened."""
        raise NotImplementedError

    def warms_up(self) -> None:
        """Something is compiled, recorded or set up in the step in progress."""
        self._capture.warmup = True
        self.clean = False

    def updated(self, optimizer: Any, end_ns: int) -> None:
        """An update has been made, or skipped by a scaler: the step is closable."""
        capture = self._capture
        self._stepped.append(optimizer)
        self._snapshot_taken = False
        if not self.explicit:
            self.cut = (end_ns, len(capture.regions), len(capture.batches))

    def has_stepped(self, optimizer: Any) -> bool:
        """Whether an optimizer has stepped in the step in progress."""
        return optimizer in self._stepped

    # ── the end of a step ───────────────────────────────────────────────────────────────────────────────────────

    def finish(self, end_ns: int) -> None:
        """Publish the last step if it can be closed; one without a loader ends with its last update."""
        self.flush()
        cut = self.cut
        if cut is None:
            return
        if self._capture.batches:
            self._close_at(end_ns)
        else:
            self._close_at_cut(cut)

    def _close_at(self, now_ns: int, event: Any = None) -> None:
        """Close where work that turned out not to be this step's began, at the latest now."""
        first = self._undecided.first()
        if first is None:
            self._close(now_ns, event)
        else:
            self._close(min(now_ns, first[1]), first[3] and first[3][0])

    def _close_at_cut(self, cut: Cut) -> None:
        end_ns, kept_regions, kept_batches = cut
        capture = self._capture
        regions, batches = capture.regions[kept_regions:], capture.batches[kept_batches:]
        del capture.regions[kept_regions:], capture.batches[kept_batches:]
        last = capture.regions[-1][3] if capture.regions else None
        self._close(end_ns, last and last[1])
        self._capture.regions += regions
        self._capture.batches += batches

    def _close(self, end_ns: int, end_event: Any = None) -> None:
        capture, recorder = self._capture, self.recorder
        phases = [region[0] for region in capture.regions]
        forward = FORWARD_INDEX in phases
        if not forward and BACKWARD_INDEX not in phases:  # an optimizer has only initialised its state
            self._begin(recorder.abort(capture))
            return
        self._before_publication(capture, forward, end_event)
        self.ended_ns = end_ns
        self._begin(recorder.complete(capture, end_ns))

    def _before_publication(self, capture: StepCapture, forward: bool, end_event: Any) -> None:
        recorder = self.recorder
        if self.watching or not forward or recorder.steps >= self.look_at:
            self.look_at = next_look(recorder.steps + 1)
            capture.warmup = capture.warmup or self.watching
            self.on_close(not forward)
        if self.memory is not None and not self._snapshot_taken:
            self.memory.closed(capture)
        if self.timer is not None:
            capture.device = self.timer.ended(end_event)
