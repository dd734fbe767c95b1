"""The table of patches on torch: all on or all off."""

from __future__ import annotations

import os
import sys
from typing import Any, Protocol

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.step import Recorder, use_recorder


class _Switch(Protocol):
    """Something with an inverse."""

    def on(self) -> None: ...

    def off(self) -> None: ...


class _Installation:
    """What stands in torch for one recorder."""

    __slots__ = ("boundaries", "recorder", "roots", "switches")

    def __init__(self, recorder: Recorder, *, strict: bool) -> None:
        # torch is imported by now, and only now may these be
        from stepmeter.capture.step import StepCapture
        from stepmeter.instrumentation import backward, boundary, dataloader, forward, optimizer
        from stepmeter.instrumentation.compiled import skip_frames
        from stepmeter.instrumentation.distributed import LateIdentity
        from stepmeter.instrumentation.roots import Roots

        self.recorder = recorder
        self.boundaries = boundaries = boundary.Boundaries(recorder, strict=strict)
        self.roots = roots = Roots(boundaries)
        identity = LateIdentity(recorder)

        def closing(missed_forward: bool) -> None:
            roots.step_closed(missed_forward)
            identity.step_closed()

        boundaries.on_close = closing
        boundaries.before_fetch = roots.scan
        roots.on_scan = identity.scanned
        self.switches: list[_Switch] = [
            *dataloader.patches(boundaries),
            *backward.patches(boundaries),
            *optimizer.patches(boundaries, roots.parameters_added),
        ]
        skip_frames((boundary.Boundaries, forward.ForwardSlot, optimizer.Hooks, Recorder, StepCapture))

    def on(self) -> None:
        done: list[_Switch] = []
        try:
            for switch in self.switches:
                switch.on()
                done.append(switch)
        except BaseException:
            for switch in reversed(done):
                switch.off()
            raise

    def off(self) -> None:
        self.boundaries.owner = 0  # what others have wrapped meanwhile passes through
        for switch in reversed(self.switches):
            switch.off()
        self.roots.off()


_installed: list[_Installation] = []
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
    installation = _Installation(recorder, strict=strict)
    installation.on()
    _installed.append(installation)
    use_recorder(recorder)
    if not _fork_guarded:
        os.register_at_fork(after_in_child=_record_nothing)
        _fork_guarded.append(True)


def uninstall() -> None:
    """Put every attribute of torch back to the identical object; harmless when nothing is installed."""
    while _installed:
        _installed.pop().off()
        use_recorder(None)


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
