"""The step in progress, and what a finished one hands to the drain."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import NamedTuple

from stepmeter.capture.channel import Channel
from stepmeter.capture.identity import Identity
from stepmeter.capture.region import PendingTimes, Region

Batch = tuple[int, int | None, int | None]
"""(loader id, samples, tokens) of a fetched batch; or (batches, samples, tokens) of a step."""


class StepTimeBatch(NamedTuple):
    """The timing of one completed step; a tuple, since a frozen dataclass costs five times as much to make.

    Attributes:
        step: Number of the step in its process, from 1.
        start_ns: Its first observed work, monotonic.
        end_ns: Its boundary, monotonic.
        regions: What was timed in it, in the order of completion; regions may be nested.
        microbatches: Batches fetched for it.
        samples: Samples in those batches; None when a batch did not show them.
        tokens: Tokens in those batches; None when a batch did not show them.
        warmup: Whether it compiled, initialised or was the first of its process.
        identity: Who trained it, as known when it completed.
        device: Its device times, not known yet; None without a device clock.
        away_ns: Time inside it that is nobody's: an evaluation between its fetch and its forward.
    """

    step: int
    start_ns: int
    end_ns: int
    regions: list[Region]
    microbatches: int
    samples: int | None
    tokens: int | None
    warmup: bool
    identity: Identity
    device: PendingTimes | None = None
    away_ns: int = 0


class StepMemory(NamedTuple):
    """The allocator's peaks in one completed step.

    Attributes:
        step: Number of the step in its process, from 1.
        hw_id: UUID of the device; None when it is not known.
        peak_allocated_bytes: Peak of what tensors held.
        peak_reserved_bytes: Peak of what the caching allocator held.
        identity: Who trained it, as known when it completed.
    """

    step: int
    hw_id: str | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    identity: Identity


class StepCapture:
    """What has been seen of one step so far; completed or aborted once.

    Attributes:
        regions: Timed regions, appended as they close.
        batches: (loader id, samples, tokens) of each fetched batch; None for what a batch did not show.
        warmup: Whether this step compiled or initialised something.
        device: Its device times, not known yet; None without a device clock.
        away_ns: Time inside it that is nobody's.
        memory: The latest (hw_id, peak allocated, peak reserved) in bytes, or None.
        detached: Whether it has been completed or aborted.
    """

    __slots__ = ("away_ns", "batches", "detached", "device", "memory", "regions", "warmup")

    def __init__(self) -> None:
        self.regions: list[Region] = []
        self.batches: list[Batch] = []
        self.warmup = False
        self.device: PendingTimes | None = None
        self.away_ns = 0
        self.memory: tuple[str | None, int, int] | None = None
        self.detached = False

    def record(self, hw_id: str | None, peak_allocated_bytes: int, peak_reserved_bytes: int) -> None:
        """Keep a memory snapshot; it replaces the one before.

        Args:
            hw_id: UUID of the device, or None.
            peak_allocated_bytes: Peak of what tensors held since the step began.
            peak_reserved_bytes: Peak of what the caching allocator held since the step began.
        """
        self.memory = (hw_id, peak_allocated_bytes, peak_reserved_bytes)


_new_tuple = tuple.__new__
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _record_nothing() -> None:
    for recorder in _recorders:
        recorder.recording = False


os.register_at_fork(after_in_child=_record_nothing)  # asking for the pid on each step costs as much as a region


class Recorder:
    """The one holder of this process's capture, counter and queues.

    Attributes:
        active: The capture in progress; there is always one.
        steps: Steps completed so far.
        timing: Completed batches on their way to the drain.
        memory: Their memory snapshots; drained on its own.
        waits: (step, ns) of the steps in which it became known how long backward waits for other ranks.
        recording: Whether completed steps are published; the queues keep draining when it is switched off.
        identity: Who this process is; replaced when torch.distributed or CUDA say more.
        on_armed: Called once, when the program makes its first optimizer; steps are to come, and none has been.
        on_publish: Called after each publication on the training thread; wakes the drain and never blocks.
        on_end: Ends a step as `complete` and `abort` do, for one that the program ends itself; None = just these. It is
            given the capture, now, where the step began or None, and whether to publish.
        on_fault: Called with a kind and the error when something of ours failed; must not raise.
        pid: The process that records; forked children find recording switched off.
    """

    __slots__ = (
        "__weakref__",
        "active",
        "identity",
        "memory",
        "on_armed",
        "on_end",
        "on_fault",
        "on_publish",
        "pid",
        "recording",
        "steps",
        "timing",
        "waits",
    )

    def __init__(self, identity: Identity | None = None, capacity: int = 2048) -> None:
        self.active = StepCapture()
        self.steps = 0
        self.timing: Channel[StepTimeBatch] = Channel(capacity)
        self.memory: Channel[StepMemory] = Channel(capacity)
        self.waits: Channel[tuple[int, int]] = Channel(capacity)
        self.recording = True
        self.identity = identity or Identity()
        self.on_armed: Callable[[], None] | None = None
        self.on_publish: Callable[[], None] | None = None
        self.on_end: Callable[[StepCapture, int, int | None, bool], None] | None = None
        self.on_fault: Callable[[str, BaseException], None] | None = None
        self.pid = os.getpid()
        _recorders.add(self)

    def arm(self) -> None:
        """Say that the program is about to train; says it once, and never in a forked child."""
        tell, self.on_armed = self.on_armed, None
        if tell is not None and self.recording:
            tell()

    def fault(self, kind: str, error: BaseException) -> None:
        """Report a failure of ours.

        Args:
            kind: What was being done, for instance `forward`.
            error: What was raised.
        """
        if self.on_fault is not None:
            self.on_fault(kind, error)

    def complete(self, capture: StepCapture, end_ns: int, start_ns: int | None = None) -> StepCapture:
        """Detach a capture, number it and publish it; harmless on one already detached.

        Args:
            capture: The capture to complete.
            end_ns: Where the step ends, monotonic.
            start_ns: Where it starts, if earlier than its first region; None = at its first region.

        Returns:
            The capture that is active from now on.
        """
        if capture.detached:
            return self.active
        fresh = StepCapture()
        capture.detached, self.active = True, fresh  # at once: Ctrl-C may come in any call
        if self.recording and capture.memory is not None:
            self.memory.put(StepMemory(self.steps + 1, *capture.memory, self.identity))
        regions, batches = capture.regions, capture.batches
        if start_ns is None:
            start_ns = min([region[1] for region in regions], default=end_ns)
        counts = (len(batches), *_totals(batches))
        self.publish(start_ns, end_ns, regions, counts, capture.device, capture.warmup, capture.away_ns)
        return fresh

    def publish(
        self,
        start_ns: int,
        end_ns: int,
        regions: list[Region],
        counts: Batch,
        device: PendingTimes | None = None,
        warmup: bool = False,
        away_ns: int = 0,
    ) -> None:
        """Number a step and hand it to the drain; does nothing while recording is off.

        Args:
            start_ns: Its first observed work, monotonic.
            end_ns: Its boundary, monotonic.
            regions: What was timed in it; the caller changes nothing in it afterwards.
            counts: (batches, samples, tokens).
            device: Its device times, not known yet; None without a device clock.
            warmup: Whether it compiled or initialised something.
            away_ns: Time inside it that is nobody's.
        """
        if not self.recording:
            return
        self.steps = step = self.steps + 1
        fields = (step, start_ns, end_ns, regions, *counts, warmup or step == 1, self.identity, device, away_ns)
        timing = self.timing
        if len(timing.items) < timing.capacity:  # `put`, written out: this runs at each step of every training
            timing.items.append(_new_tuple(StepTimeBatch, fields))  # half the time of StepTimeBatch(...)
        else:
            timing.dropped += 1
        if self.on_publish is not None:
            self.on_publish()

    def abort(self, capture: StepCapture) -> StepCapture:
        """Detach a capture and discard it; the counter does not move; harmless on one already detached.

        Args:
            capture: The capture to discard.

        Returns:
            The capture that is active from now on.
        """
        if not capture.detached:
            fresh = StepCapture()
            capture.detached, self.active = True, fresh
        return self.active


def _totals(batches: list[Batch]) -> tuple[int | None, int | None]:
    return _total([batch[1] for batch in batches]), _total([batch[2] for batch in batches])


def _total(counts: list[int | None]) -> int | None:
    """Their sum; None when there are none or one of them is not known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
