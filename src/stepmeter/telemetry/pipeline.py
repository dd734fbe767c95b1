"""The always-on way from the recorder to the user's exporters: one drain thread, one sender a destination.

It passes by the user's sampler and id generator, which must not decide over facts. Everything that takes time (the
resource, NVML, the exporters) happens on the drain thread; the training thread only starts it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from stepmeter.capture.channel import Channel
from stepmeter.capture.clock import ClockAnchor, monotonic_ns
from stepmeter.capture.facts import step_facts
from stepmeter.capture.outbox import Outbox
from stepmeter.capture.reading import Reading
from stepmeter.capture.region import DeviceTimes, Unresolved
from stepmeter.capture.run import ensure_run_id
from stepmeter.capture.step import Recorder, StepMemory, StepTimeBatch
from stepmeter.conventions import environment, metrics
from stepmeter.telemetry import emit
from stepmeter.telemetry.aggregate import Aggregator
from stepmeter.telemetry.budget import budget_from_environ
from stepmeter.telemetry.exporters import metric_exporters, protect, span_exporters, unprotect
from stepmeter.telemetry.guard import Guard
from stepmeter.telemetry.kept import KeptRequests, kept_requests
from stepmeter.telemetry.outlet import SpanOutlet
from stepmeter.telemetry.pull import PullSource, pull_readers
from stepmeter.telemetry.resource import step_resource
from stepmeter.telemetry.sender import Sender, close_all
from stepmeter.telemetry.user_drain import UserDrain

_POLL_S = 0.2  # each look takes the interpreter from the training; the queue holds half a second at 4,000 steps/s
_DEVICE_POLL_S = 0.01
_DEVICE_S = 0.3
_EXPORT_INTERVAL_S = 1.0
_METRICS_WAITING = 8
_ACCOUNTING_S = 0.1  # what the drain thread may take, after the senders' deadline, to say what was not delivered


class _Flush:
    """Somebody who waits until what was recorded has been taken."""

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self.delivered = False
        self.done = threading.Event()


class Pipeline:
    """Drains one recorder.

    Args:
        recorder: Where the training thread publishes.
        anchor: The process's clock anchor.
        guard: Takes what fails, counts what is lost.
        outcome: Says at the end how the program went.
        readings: Where background samplers publish.
        other_cpu_time_s: CPU time of our threads that are not of this pipeline.
        outbox: What the program itself records; None for nothing.

    Attributes:
        kept: Where spans go that no backend took, and how many went there; None where there is no such place.
    """

    def __init__(
        self,
        recorder: Recorder,
        anchor: ClockAnchor,
        guard: Guard,
        outcome: Callable[[], str],
        readings: Channel[Reading],
        other_cpu_time_s: Callable[[], float] = lambda: 0.0,
        outbox: Outbox | None = None,
    ) -> None:
        self._outbox = outbox
        self._user: UserDrain | None = None
        self._flushes: deque[_Flush] = deque()
        self._wake = threading.Event()
        self._recorder = recorder
        self._readings = readings
        self._other_cpu_time_s = other_cpu_time_s
        self._anchor = anchor
        self._guard = guard
        self._outcome = outcome
        self._aggregator = Aggregator(anchor.unix_ns)
        self._budget = budget_from_environ(os.environ)
        self._memory: dict[int, StepMemory] = {}
        self._waits: dict[int, int] = {}
        self._unresolved = Unresolved()
        self._closing = threading.Event()
        self._deadline_s = float("inf")
        self._metric_senders: list[Sender] = []
        self._protected: list[Any] = []
        self._pull = PullSource([])
        self._undelivered: int | None = None
        self.kept: KeptRequests | None = None
        self._thread = threading.Thread(target=self._run, name="stepmeter-drain", daemon=True)

    def start(self) -> None:
        """Start the drain thread."""
        self._thread.start()

    def flush(self, deadline_s: float) -> bool:
        """Send what waits at this moment, and wait until it has been taken.

        Args:
            deadline_s: On `time.monotonic()`.

        Returns:
            Whether all of it was taken by then.
        """
        asked = _Flush(deadline_s)
        self._flushes.append(asked)
        self._wake.set()
        return asked.done.wait(max(0.0, deadline_s - time.monotonic())) and asked.delivered

    def close(self, deadline_s: float) -> int:
        """Drain, send what waits and end the threads.

        Args:
            deadline_s: On `time.monotonic()`; nothing is waited for beyond it.

        Returns:
            Spans and metric requests that were not delivered.
        """
        self._deadline_s = deadline_s - _ACCOUNTING_S
        self._closing.set()
        self._wake.set()
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        return len(self._recorder.timing) if self._undelivered is None else self._undelivered

    def release(self) -> None:
        """Leave the exporters as they were."""
        for exporter in self._protected:
            unprotect(exporter)
        self._pull.release()

    def _run(self) -> None:
        with self._guard.over("setting up telemetry"):
            self._work(*self._set_up())

    def _work(self, origin: emit.Origin, outlet: SpanOutlet) -> None:
        self._mark(origin, outlet, self._anchor.monotonic_ns, lambda: "started")
        next_export_s = time.monotonic()
        while not self._closing.is_set():
            self._wake.wait(_POLL_S)
            self._wake.clear()
            with self._guard.over("draining"):
                self._drain(origin, outlet)
            if time.monotonic() >= next_export_s and not self._closing.is_set():
                next_export_s = time.monotonic() + self._interval_s()
                self._export(origin, outlet)
            with self._guard.over("flushing"):
                self._answer_flushes(origin, outlet)
        with self._guard.over("draining"):
            self._drain_to_the_end(origin, outlet)
        self._mark(origin, outlet, monotonic_ns(), self._outcome)
        self._export(origin, outlet)
        row_senders = [] if self._user is None else self._user.senders
        self._undelivered = close_all([*outlet.senders, *self._metric_senders, *row_senders], self._deadline_s)
        if self._user is not None:
            self._user.close()
        self._answer_flushes(origin, outlet)

    def _mark(self, origin: emit.Origin, outlet: SpanOutlet, at_ns: int, outcome: Callable[[], str]) -> None:
        with self._guard.over("marking the run"):
            outlet.add([emit.run_span(self._recorder.identity, origin, at_ns, outcome())])

    def _interval_s(self) -> float:
        interval_s = _EXPORT_INTERVAL_S if self._outbox is None else self._outbox.interval_s
        return float("inf") if interval_s is None else min(_EXPORT_INTERVAL_S, interval_s)

    def _answer_flushes(self, origin: emit.Origin, outlet: SpanOutlet) -> None:
        waiting = [self._flushes.popleft() for _ in range(len(self._flushes))]
        if not waiting:
            return
        self._drain(origin, outlet, hold=False)  # what was recorded before they asked, and after the last drain began
        self._export(origin, outlet)
        row_senders = [] if self._user is None else self._user.senders
        for asked in waiting:
            taken = [sender.wait_idle(asked.deadline_s) for sender in (*outlet.senders, *row_senders)]
            asked.delivered = all(taken)
            asked.done.set()

    def _set_up(self) -> tuple[emit.Origin, SpanOutlet]:
        tracer_provider, meter_provider = trace_api.get_tracer_provider(), metrics_api.get_meter_provider()
        for exporter in metric_exporters(meter_provider):
            self._protect(exporter)
            self._metric_senders.append(Sender(exporter.export, "metrics", _METRICS_WAITING, self._guard))
        self._pull = PullSource(pull_readers(meter_provider))
        configured = tracer_provider.resource if isinstance(tracer_provider, TracerProvider) else None
        if configured is None and isinstance(meter_provider, MeterProvider):
            configured = meter_provider._sdk_config.resource  # noqa: SLF001 - no public way
        run_id = ensure_run_id(os.environ)
        resource = step_resource(configured, self._anchor)
        origin = emit.Origin(resource, run_id, os.environ.get(environment.RUN_NAME, run_id), self._anchor)
        exporters = span_exporters(tracer_provider)
        for exporter in exporters:
            self._protect(exporter)
        if self._outbox is not None:
            self._user = UserDrain(self._outbox, origin, self._aggregator, self._guard, self._recorder)
        lines = None if self._user is None else self._user.lines
        run_dir = None if self._outbox is None or self._outbox.kept is None else self._outbox.kept.parent.parent
        self.kept = kept_requests(os.environ, run_id, self._recorder.identity.rank, run_dir)
        return origin, SpanOutlet(exporters, resource, self._guard, lines, self.kept)

    def _protect(self, exporter: Any) -> None:
        protect(exporter, self._guard)
        self._protected.append(exporter)

    def _drain(self, origin: emit.Origin, outlet: SpanOutlet, *, hold: bool = True) -> None:
        # timing before memory: a step's snapshot is published before its timing, so it is there by now
        batches = self._recorder.timing.drain()
        for memory in self._recorder.memory.drain():
            self._memory[memory.step] = memory
        self._waits.update(self._recorder.waits.drain())
        if self._user is not None:
            with self._guard.over("turning spans and rows into telemetry"):
                self._user.drain(outlet, batches, hold=hold)
        with self._guard.over("reading device times"):
            for batch, device in self._unresolved.release(batches):
                self._hand_on(batch, device, origin, outlet)

    def _drain_to_the_end(self, origin: emit.Origin, outlet: SpanOutlet) -> None:
        """Drain, give the device a moment for what it still computes, and do without what it has not done by then."""
        deadline_s = min(time.monotonic() + _DEVICE_S, self._deadline_s)
        self._drain(origin, outlet, hold=False)
        while self._unresolved.waiting and time.monotonic() < deadline_s:
            time.sleep(_DEVICE_POLL_S)
            self._drain(origin, outlet, hold=False)
        self._guard.lost("device times: not known at exit", len(self._unresolved.waiting))
        for batch, device in self._unresolved.give_up():
            self._hand_on(batch, device, origin, outlet)

    def _hand_on(
        self, batch: StepTimeBatch, device: DeviceTimes | None, origin: emit.Origin, outlet: SpanOutlet
    ) -> None:
        if device is not None:
            self._guard.lost("device pair: failed", device.lost_pairs)
        with self._guard.over("turning a step into telemetry"):
            outlet.add(self._emit(batch, device, self._memory.pop(batch.step, None), origin))
            if len(self._memory) > self._recorder.memory.capacity:  # their steps were dropped
                self._memory = {step: memory for step, memory in self._memory.items() if step > batch.step}
            if len(self._waits) > self._recorder.waits.capacity:
                self._waits.clear()

    def _emit(
        self, batch: StepTimeBatch, device: DeviceTimes | None, memory: StepMemory | None, origin: emit.Origin
    ) -> list[emit.SpanRecord]:
        facts = step_facts(batch, device)
        children = self._budget.take(len(batch.regions), batch.end_ns)
        emit.record_step(batch, facts, memory, origin.run_name, self._aggregator)
        wait_ns = self._waits.pop(batch.step, None)
        return emit.step_spans(batch, facts, memory, origin, children=children, wait_ns=wait_ns)

    def _export(self, origin: emit.Origin, outlet: SpanOutlet) -> None:
        with self._guard.over("encoding spans"):
            outlet.flush()
        lines = None if self._user is None else self._user.lines
        if not self._metric_senders and not self._pull and lines is None:
            return
        with self._guard.over("collecting metrics"):
            data = self._collect(origin, outlet)
            if lines is not None:
                lines.metrics(data)
            for sender in self._metric_senders:
                sender.put(data, 1)

    def _collect(self, origin: emit.Origin, outlet: SpanOutlet) -> Any:
        base = emit.point_attributes(self._recorder.identity, origin.run_name)
        losses = self._guard.losses()
        for reading in self._readings.drain():
            metric = metrics.METRIC_BY_NAME[reading.metric]
            at_unix_ns = self._anchor.unix_ns_of(reading.at_ns)
            self._aggregator.reading(metric, (*base, *reading.attributes), reading.value, at_unix_ns)
        losses["reading: queue full"] = self._readings.dropped
        losses |= {} if self._user is None else self._user.losses()
        losses["step: queue full"] = self._recorder.timing.dropped
        losses["memory: queue full"] = self._recorder.memory.dropped
        for kind, count in losses.items():
            if count:
                self._aggregator.set_total(metrics.DROPPED, (*base, ("kind", kind)), count)
        senders = (*outlet.senders, *self._metric_senders)
        own_s = time.thread_time() + self._other_cpu_time_s() + sum(sender.cpu_time_s for sender in senders)
        self._aggregator.set_total(metrics.SELF_CPU_TIME, base, own_s)
        whose = (self._anchor.unix_ns_of(monotonic_ns()), origin.resource, emit.SCOPE)
        if self._pull:
            self._pull.publish(self._aggregator.latest(*whose))
        return self._aggregator.collect(*whose)
