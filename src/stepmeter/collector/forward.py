"""The original bytes, on to other backends: a bounded queue for each, so that a dead one harms nobody.

A request is offered once it is durable here. What a backend could not be given is counted and lost to it, never
to the store.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from stepmeter.collector.otlp import Encoding, partial_success
from stepmeter.collector.otlp_client import GrpcClient, HttpClient, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepmeter.collector.destination import Destination
    from stepmeter.collector.health import Health
    from stepmeter.collector.journal import Record

_BACKOFF_FACTOR: Final = 1.5
_JITTER: Final = 0.5
"""Each pause is drawn from its length ± this share. Source: the Collector's `randomization_factor`."""
_DRAIN_S: Final = 2.0
"""How long the end waits for backends that answer."""
_LAST_WORD_S: Final = 0.2
"""How long a thread whose connection was closed under it may take to notice."""


class Forwarder:
    """Passes requests on to all destinations of their signal.

    Args:
        destinations: Where to.
        health: Counters `forwarded.<name>` and `forward_dropped.<name>`, in requests.
    """

    def __init__(self, destinations: Sequence[Destination], health: Health) -> None:
        self._queues = [_Queue(destination, health) for destination in destinations]

    def offer(self, record: Record) -> None:
        """Queue a request; never waits.

        Args:
            record: The request.
        """
        for queue in self._queues:
            queue.offer(record)

    def close(self, drain_s: float = _DRAIN_S) -> None:
        """Send what waits to the backends that take it; the rest is counted as dropped.

        Args:
            drain_s: Limit of all of it.
        """
        end_s = time.monotonic() + drain_s
        for queue in self._queues:
            queue.begin_end()
        for queue in self._queues:
            queue.end(end_s)


class _Queue:
    """What waits for one destination, and the threads that send it."""

    def __init__(self, destination: Destination, health: Health) -> None:
        self._destination = destination
        self._health = health
        self._client = GrpcClient(destination) if destination.protocol == "grpc" else HttpClient(destination)
        self._waiting: deque[Record] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._consume, name=f"stepmeter-forward-{destination.name}", daemon=True)
            for _ in range(destination.consumers)
        ]
        for thread in self._threads:
            thread.start()

    def offer(self, record: Record) -> None:
        if record.signal.name not in self._destination.signals:
            return
        with self._changed:
            fits = self._bytes + len(record.body) <= self._destination.queue_bytes
            if fits and not self._ending.is_set():
                self._waiting.append(record)
                self._bytes += len(record.body)
                self._changed.notify()
                return
        self._drop(f"{self._destination.queue_bytes >> 20} MiB wait for it")

    def begin_end(self) -> None:
        self._ending.set()
        with self._changed:
            self._changed.notify_all()

    def end(self, end_s: float) -> None:
        for thread in self._threads:
            thread.join(max(0.0, end_s - time.monotonic()))
        self._give_up("the collector ended")
        self._client.close()
        for thread in self._threads:
            thread.join(_LAST_WORD_S)
        if unknown := sum(thread.is_alive() for thread in self._threads):
            self._drop("the collector ended before it answered", unknown)

    def _consume(self) -> None:
        while (record := self._take()) is not None:
            self._try_to_deliver(record)

    def _try_to_deliver(self, record: Record) -> None:
        try:
            self._deliver(record)
        except Exception as error:  # whatever it is, the thread must live to send the next one
            self._drop(f"{type(error).__name__}: {error}")
        finally:
            with self._changed:
                self._bytes -= len(record.body)

    def _take(self) -> Record | None:
        with self._changed:
            while not self._waiting:
                if self._ending.is_set():
                    return None
                self._changed.wait()
            return self._waiting.popleft()

    def _deliver(self, record: Record) -> None:
        retry = self._destination.retry
        give_up_s = time.monotonic() + retry.max_elapsed_s
        pause_s = retry.initial_interval_s
        while True:
            last = self._ending.is_set()
            outcome = self._client.send(record)
            if not outcome.problem:
                self._delivered(record, outcome)
                return
            wait_s = outcome.retry_after_s
            if wait_s is None:
                wait_s = pause_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 - spreads load, hides nothing
                pause_s = min(pause_s * _BACKOFF_FACTOR, retry.max_interval_s)
            if last and outcome.retryable:
                self._give_up(outcome.problem)  # nobody else in the queue would fare better
            if last or not outcome.retryable or time.monotonic() + wait_s > give_up_s:
                self._drop(outcome.problem)
                return
            self._health.count(f"forward_retries.{self._destination.name}")
            self._ending.wait(wait_s)

    def _delivered(self, record: Record, outcome: Outcome) -> None:
        self._health.count(f"forwarded.{self._destination.name}")
        encoding = record.encoding if self._destination.protocol == "http" else Encoding.PROTOBUF
        number, reason = partial_success(record.signal, encoding, outcome.answer)
        if number:
            name = self._destination.name
            self._health.warn(f"forward_rejected.{name}", f"{name} rejected {number} items: {reason}", number)

    def _give_up(self, why: str) -> None:
        with self._changed:
            number = len(self._waiting)
            self._bytes -= sum(len(record.body) for record in self._waiting)
            self._waiting.clear()
        if number:
            self._drop(why, number)

    def _drop(self, why: str, number: int = 1) -> None:
        name = self._destination.name
        self._health.warn(f"forward_dropped.{name}", f"not forwarded to {name}: {why}", number)
