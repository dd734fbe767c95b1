"""The table of patches on torch: all on or all off."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from typing import Any

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.ending import use_recorder
from stepmeter.capture.step import Recorder, StepCapture
from stepmeter.conventions import environment
from stepmeter.instrumentation.patch import Switch, all_on


class Installation:
    """What stands in torch for one recorder.

    Attributes:
        boundaries: What turns events into steps.
        roots: The modules whose calls are forwards.
        timed_next: Makes a timed `__next__` for other iterators than torch's.
    """

    __slots__ = ("_compilations", "_identity", "_wait", "boundaries", "recorder", "roots", "switches", "timed_next")

    def __init__(self, recorder: Recorder, *, strict: bool) -> None:
        # torch is imported by now, and only now may these be
        from stepmeter.instrumentation import backward, boundary, dataloader, forward, memory, optimizer, roots
        from stepmeter.instrumentation.compiled import CompileWatch, skip_frames
        from stepmeter.instrumentation.distributed import LateIdentity
        from stepmeter.instrumentation.undecided import Undecided
        from stepmeter.instrumentation.waiting import BackwardWait

        self.recorder = recorder
        self.boundaries = boundaries = boundary.Boundaries(recorder, strict=strict)
        self.roots = roots.Roots(boundaries)
        self.timed_next = functools.partial(dataloader.timed_next, boundaries)
        self._identity = LateIdentity(recorder)
        self._wait = BackwardWait(recorder)
        self._compilations = CompileWatch(self._compiling)
        self._identity.on_device = self._train_on
        boundaries.on_close = self._closing
        boundaries.before_fetch = self.roots.scan
        self.roots.on_scan = self._scanned
        self.switches: list[Switch] = [
            *dataloader.patches(boundaries),
            *backward.patches(boundaries),
            *optimizer.patches(boundaries, self.roots.parameters_added),
            *roots.patches(boundaries, self.roots),
            self._compilations,
        ]
        if measures_memory(os.environ):
            self.switches += memory.patches(lambda: boundaries.memory, recorder.fault)
        skip_frames((*boundary.Boundaries.__mro__[:-1], Undecided, forward.ForwardSlot, Recorder, StepCapture))

    def ended(self, capture: StepCapture, end_ns: int, start_ns: int | None, completed: bool) -> None:
        """The program ends a step itself."""
        boundaries = self.boundaries
        try:
            boundaries.step_ended(capture, end_ns, start_ns, completed)
        except Exception as error:
            boundaries.fault("step", error)

    def _closing(self, missed_forward: bool) -> None:
        self.roots.step_closed(missed_forward)
        self._identity.step_closed()
        self._wait.step_closed()
        self._compilations.renew()

    def _scanned(self, modules: list[Any]) -> None:
        self._wait.scanned(modules)
        self._identity.scanned(modules)

    def _compiling(self) -> None:
        """Dynamo compiles something; what we raised here would reach the program."""
        try:
            self.boundaries.warms_up()
            self.boundaries.silent.listen(self.roots.optimizers())
        except Exception as error:
            self.boundaries.fault("compile", error)

    def _train_on(self, device: Any) -> None:
        """Training runs on a device: time it there, measure its memory, see what is copied to it."""
        from stepmeter.instrumentation import cuda, memory, transfer
        from stepmeter.instrumentation.distributed import hw_id

        if device.type != "cuda":
            return
        boundaries = self.boundaries
        first = boundaries.timer is None
        boundaries.timer = timer = cuda.DeviceTimer(device)
        if measures_memory(os.environ):
            boundaries.memory = memory.of_device(device, hw_id(device))
        if first:
            switches: list[Switch] = [*transfer.patches(boundaries), *cuda.patches(timer, self._compiling)]
            all_on(switches)
            self.switches += switches

    def on(self) -> None:
        """Put everything in place, or nothing."""
        from stepmeter.instrumentation.compiled import skip_frames

        all_on(self.switches)
        skip_frames(function for switch in self.switches for function in getattr(switch, "functions", ()))

    def off(self) -> None:
        """Leave torch as it was."""
        self.boundaries.owner = 0  # what others have wrapped meanwhile passes through
        for switch in reversed(self.switches):
            switch.off()
        self.roots.off()


def measures_memory(environ: Mapping[str, str]) -> bool:
    """Whether the allocator's peaks may be reset.

    Args:
        environ: The environment.

    Returns:
        False under STEPMETER_MEMORY=0.
    """
    return environ.get(environment.MEMORY, "").strip().lower() not in {"0", "false", "no", "off"}


_installed: list[Installation] = []
_fork_guarded: list[bool] = []


def install(recorder: Recorder, *, strict: bool = False) -> None:
    """Watch torch for a recorder; imports torch if the program has not.

    Args:
        recorder: Where steps go.
        strict: Whether failures of ours are raised into the program; for tests.

    Raises:
        Exception: Whatever kept a patch from being made; torch is then as it was.
    """
    if _installed:
        return
    installation = Installation(recorder, strict=strict)
    installation.on()
    _installed.append(installation)
    recorder.on_end = installation.ended
    use_recorder(recorder)
    if not _fork_guarded:
        os.register_at_fork(after_in_child=_record_nothing)
        _fork_guarded.append(True)


def uninstall() -> None:
    """Put every attribute of torch back to the identical object; harmless when nothing is installed."""
    while _installed:
        installation = _installed.pop()
        installation.off()
        installation.recorder.on_end = None
        use_recorder(None)


def installed() -> Installation | None:
    """What stands in torch.

    Returns:
        The installation; None while nothing is watched.
    """
    return _installed[0] if _installed else None


def finish(recorder: Recorder) -> None:
    """Publish the last step if it can be closed; for the end of the program, from its thread.

    Args:
        recorder: Whose step.
    """
    for installation in _installed:
        if installation.recorder is recorder and installation.boundaries.owner:
            try:
                installation.boundaries.finish(monotonic_ns())
            except Exception as error:
                recorder.fault("finish", error)


def hook_torch(recorder: Recorder) -> None:
    """Install once the program has imported torch, at once if it has; never raises.

    Args:
        recorder: Where steps go, and where a failure to install is reported.
    """

    def loaded(_torch: Any) -> None:
        # a raising post-import hook would fail the user's import
        try:
            install(recorder)
        except Exception as error:
            recorder.fault("install", error)

    try:
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "compiler"):
            loaded(torch)
            return
        import wrapt  # 82 ms where OpenTelemetry's launcher has not loaded it already

        wrapt.register_post_import_hook(loaded, "torch")
    except Exception as error:
        recorder.fault("install", error)


def _record_nothing() -> None:
    """A forked child, such as a loader's worker, is nobody's training."""
    for installation in _installed:
        installation.boundaries.owner = 0
