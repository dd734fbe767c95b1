"""One `Trainer.fit` of Lightning: which of its work belongs to steps, and where they begin and end.

A micro-batch is traced from the end of its fetch to the callbacks' `on_train_batch_end`. Between micro-batches the
training thread is at rest: evaluation, logging and checkpoints are nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.step import StepCapture
from stepmeter.instrumentation.explicit import TracedStep, is_tracing
from stepmeter.instrumentation.instrumentor import Installation, installed
from stepmeter.integrations.lightning_step import Interval, TrainingStep, gaps_ns, keep_input


class Fit:
    """Owns the steps of one `Trainer.fit`.

    Args:
        trainer: The trainer.
        installation: What stands in torch.

    Attributes:
        trainer: The trainer; what others do is not this one's.
        callback: What the trainer tells us through, once it is attached.
        evaluating: Whether an evaluation runs.
        step: What happens inside `training_step`.
    """

    __slots__ = (
        "_apart_ns",
        "_arming",
        "_before",
        "_fetched_ns",
        "_gap",
        "_group",
        "_installation",
        "_running",
        "_spans",
        "_theirs",
        "_thread",
        "_tidied",
        "_traced_ns",
        "_watched",
        "callback",
        "evaluating",
        "step",
        "trainer",
    )

    def __init__(self, trainer: Any, installation: Installation) -> None:
        self.trainer = trainer
        self.callback: Any = None
        self.evaluating = False
        self._installation = installation
        self._thread = get_ident()
        self._arming: Any = None
        self._watched: list[Any] = []
        self.step = TrainingStep(installation)
        self._theirs = False
        self._forget()
        boundaries = installation.boundaries
        self._before = (boundaries.owner, boundaries.hand_over(monotonic_ns()))
        self._rest()

    def _forget(self) -> None:
        """Nothing is known of a group."""
        self._group: TracedStep | None = None
        self._spans: list[Interval] = []
        self._tidied = 0
        self._fetched_ns: int | None = None
        self._gap: tuple[int, Any] | None = None
        self._traced_ns = self._apart_ns = 0
        self._running: list[Any] = []
        self.step.forget()

    @property
    def records(self) -> bool:
        """Whether anything is to be recorded: not in a forked child, not once it has been switched off."""
        return installed() is self._installation and self._installation.recorder.recording

    def _attend(self) -> None:
        """The training thread trains; other loaders than the trainer's are nobody's."""
        boundaries = self._installation.boundaries
        boundaries.owner = self._thread if self.records else 0
        boundaries.fetching = True

    def _rest(self) -> None:
        boundaries = self._installation.boundaries
        boundaries.owner = 0
        boundaries.fetching = False

    @property
    def trains_here(self) -> bool:
        """Whether this is the thread that trains, and no evaluation runs on it."""
        return not self.evaluating and self.records and get_ident() == self._thread

    def evaluation(self) -> Evaluation:
        """An evaluation begins, or another fit, in the middle of a group or between two."""
        return Evaluation(self, self._installation, None if self._group is None else self._group.capture)

    def evaluated(self, within_ns: int) -> None:
        """It has ended.

        Args:
            within_ns: How long it took, if it was within a micro-batch.
        """
        self.evaluating = False
        self._apart_ns += within_ns

    # ── the module ──────────────────────────────────────────────────────────────────────────────────────────────

    def training_begins(self, module: Any, arm: Callable[[Any], Any]) -> None:
        """Checkpoints are restored and averaged copies are made: watch the module, its children and their caller.

        Args:
            module: The LightningModule.
            arm: Makes what tells this fit of each `training_step`, or None.
        """
        if not self.records:
            return
        self.release()
        self.step.compiled = getattr(module, "_compiler_ctx", None) is not None
        roots = self._installation.roots
        for watched in (module, *module.children()):
            if roots.watch(watched):
                self._watched.append(watched)
        self._arming = arm(module)
        if self._arming is not None:
            self._arming.on()

    def release(self) -> None:
        """Leave the module as it was."""
        arming, self._arming = self._arming, None
        if arming is not None:
            arming.off()
        watched, self._watched = self._watched, []
        for module in watched:
            self._installation.roots.unwatch(module)

    # ── input ───────────────────────────────────────────────────────────────────────────────────────────────────

    def iterator_made(self) -> None:
        """The training loader begins anew: what is left of the last round, or of a tuner's, is nobody's."""
        if self._group is None:
            self._installation.boundaries.give_up()
            self._rest()

    def fetch_begins(self) -> None:
        """The trainer asks for a batch, or `training_step` does, within an optimizer's step."""
        self._end_gap()
        self._attend()
        boundaries = self._installation.boundaries
        boundaries.fetching = False
        self._running = boundaries.optimizers[:]

    def fetch_ended(self) -> None:
        """It has it, or there is none left."""
        boundaries = self._installation.boundaries
        if boundaries.owner:
            boundaries.adopt()
        boundaries.optimizers[:] = self._running
        self._attend()
        self._fetched_ns = monotonic_ns()

    # ── micro-batches and groups ────────────────────────────────────────────────────────────────────────────────

    def batch_begins(self) -> None:
        """A micro-batch is about to be trained; the first of a group opens it."""
        if not self.records:
            return
        self._end_gap()
        self._attend()
        group = self._group
        if group is not None and (group.capture is None or group.capture.detached):
            self._close(None)  # ended by the program itself, or given up after a failure of ours
        if self._group is None and not self._open():
            return
        fetched_ns, self._fetched_ns = self._fetched_ns, None
        self.step.forget()
        self._traced_ns = fetched_ns or monotonic_ns()
        self._installation.boundaries.adopt()

    def _open(self) -> bool:
        """Open a group, unless the program has a step of its own open here."""
        self._theirs = is_tracing()
        if self._theirs:
            return False
        boundaries = self._installation.boundaries
        keep_input(boundaries.adopt())
        if boundaries.stale:
            boundaries.before_fetch()  # a scan takes tens of milliseconds: in nobody's time
        if boundaries.memory is not None:
            boundaries.memory.dirty = True  # the peaks since the last step are nobody's
        self._group = TracedStep()
        self._group.__enter__()
        return True

    def batch_ends(self) -> None:
        """A micro-batch has been trained; an update ends the group."""
        group, theirs = self._group, self._theirs
        self._theirs = False
        if theirs or group is None or group.capture is None or not self.records:
            self._rest()
            return
        boundaries = self._installation.boundaries
        boundaries.flush()
        self._spans.append((self._traced_ns, monotonic_ns()))
        if not group.capture.detached:
            self.step.tidy(group.capture, self._tidied)
            self._tidied = len(group.capture.regions)
        module = self.trainer.lightning_module
        # manual optimization has no groups: each batch is a step
        if not (module.automatic_optimization and self.trainer.fit_loop._should_accumulate()):  # noqa: SLF001 - Lightning's only word on it
            group.capture.away_ns = self._apart_ns + gaps_ns(group.capture.regions, self._spans)
            self._close(None)
        elif boundaries.timer is not None:
            self._gap = (monotonic_ns(), boundaries.timer.mark())
        self._rest()

    def _end_gap(self) -> None:
        """What has lain between two micro-batches is nobody's on the device either."""
        gap, self._gap = self._gap, None
        timer = self._installation.boundaries.timer
        if gap is not None and timer is not None:
            timer.away(*gap)

    def _close(self, kind: type[BaseException] | None) -> None:
        group = self._group
        self._forget()
        if group is not None:
            group.__exit__(kind, None, None)

    def ends(self) -> None:
        """The fit has ended or was left by an exception: a group without an update is no step."""
        owner, explicit = self._before
        boundaries = self._installation.boundaries
        try:
            self.release()
            self._close(GeneratorExit)
            boundaries.give_up()
        finally:
            boundaries.explicit = explicit
            boundaries.fetching = False
            boundaries.owner = owner if self.records else 0


class Evaluation:
    """An evaluation or another fit during a fit: its fetches, its work and its memory are nobody's.

    Args:
        fit: The fit.
        installation: What stands in torch.
        capture: The group in progress, if there is one.
    """

    __slots__ = ("_boundaries", "_capture", "_fit", "_mark", "_scope", "_start_ns")

    def __init__(self, fit: Fit, installation: Installation, capture: StepCapture | None) -> None:
        self._fit = fit
        self._capture = capture
        self._boundaries = boundaries = installation.boundaries
        if boundaries.memory is not None and capture is not None:
            boundaries.memory.closed(capture)
        self._start_ns = monotonic_ns()
        self._mark = boundaries.timer.mark() if boundaries.timer is not None and boundaries.owner else None
        self._scope = (boundaries.owner, boundaries.fetching)
        boundaries.owner = 0
        fit.evaluating = True

    def ends(self) -> None:
        """The fit goes on."""
        boundaries = self._boundaries
        within = bool(self._scope[0])  # the thread rests between micro-batches
        self._fit.evaluated(monotonic_ns() - self._start_ns if within else 0)
        if self._fit.records:
            boundaries.owner, boundaries.fetching = self._scope
        if boundaries.timer is not None and within:
            boundaries.timer.away(self._start_ns, self._mark)
        if boundaries.memory is not None and self._capture is not None:
            boundaries.memory.opened()
