"""One thread and one bounded queue for each destination, so that a dead one holds back nobody."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from stepmeter.telemetry.guard import Guard

_MAX_ATTEMPTS = 5
_RETRY_DELAY_S = 0.5


class Sender:
    """Hands payloads to one exporter, in order.

    Args:
        export: The exporter's `export`.
        item: What a payload consists of, for the loss count: `span` or `metrics`.
        capacity: Items that may wait; a payload that does not fit is dropped and counted.
        guard: Where losses are counted.
        keep: Takes a payload and its number of items when the destination does not, and says whether it has them.
    """

    def __init__(
        self,
        export: Callable[[Any], Any],
        item: str,
        capacity: int,
        guard: Guard,
        keep: Callable[[Any, int], bool] | None = None,
    ) -> None:
        self._export = export
        self._keep = keep
        self._item = item
        self._capacity = capacity
        self._guard = guard
        self._queue: deque[tuple[Any, int]] = deque()
        self._abandoned = False
        self._changed = threading.Condition()
        self._waiting = 0
        self._lost = 0
        self._in_flight: tuple[Any, int] | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"stepmeter-send-{item}", daemon=True)
        self.cpu_time_s = 0.0
        self._thread.start()

    def put(self, payload: Any, items: int) -> None:
        """Queue a payload.

        Args:
            payload: What the exporter takes.
            items: How many items it holds.
        """
        with self._changed:
            if self._waiting and self._waiting + items > self._capacity:
                self._give_up(payload, "destination too slow", items)
                return
            self._waiting += items
            self._queue.append((payload, items))
            self._changed.notify()

    def wait_idle(self, deadline_s: float) -> bool:
        """Wait until nothing waits or is under way.

        Args:
            deadline_s: On `time.monotonic()`.

        Returns:
            Whether that was reached.
        """
        with self._changed:
            while self._waiting and (left_s := deadline_s - time.monotonic()) > 0:
                self._changed.wait(left_s)
            return not self._waiting

    def begin_close(self) -> None:
        """Let the thread end once the queue is empty; a payload that fails from now on is not tried again."""
        self._closing.set()
        with self._changed:
            self._changed.notify()

    def join(self, deadline_s: float) -> int:
        """Wait for the thread.

        Args:
            deadline_s: On `time.monotonic()`.

        Returns:
            Items that were not delivered by then or were lost before.
        """
        self._thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._changed:
            self._abandoned = True
            for payload, items in self._pending():
                self._give_up(payload, "not delivered at exit", items)
            return self._lost

    def undelivered(self) -> list[Any]:
        """What waits or is under way at this moment.

        Returns:
            Payloads, oldest first; the one under way may still arrive.
        """
        with self._changed:
            return [payload for payload, _ in self._pending()]

    def _pending(self) -> list[tuple[Any, int]]:
        return [*([] if self._in_flight is None else [self._in_flight]), *self._queue]

    def _give_up(self, payload: Any, why: str, items: int) -> None:
        if self._keep is None or not self._keep(payload, items):
            self._lose(why, items)

    def _lose(self, why: str, items: int) -> None:
        self._lost += items
        self._guard.lost(f"{self._item}: {why}", items)

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            payload, items = entry
            with self._guard.over("sending telemetry"):
                if not self._deliver(payload) and not self._abandoned:
                    self._give_up(payload, "destination refused", items)
            with self._changed:
                self._waiting -= items
                self._in_flight = None
                if not self._waiting:
                    self._changed.notify_all()
            self.cpu_time_s = time.thread_time()

    def _next(self) -> tuple[Any, int] | None:
        with self._changed:
            while not self._queue:
                if self._closing.is_set():
                    return None
                self._changed.wait()
            entry = self._queue.popleft()
            self._in_flight = entry
            return entry

    def _deliver(self, payload: Any) -> bool:
        for attempt in range(_MAX_ATTEMPTS):
            outcome = getattr(self._export(payload), "name", "SUCCESS")
            if outcome == "SUCCESS":
                return True
            if outcome == "REFUSED" or self._closing.wait(_RETRY_DELAY_S * 2**attempt):
                return False
        return False


def close_all(senders: Sequence[Sender], deadline_s: float) -> int:
    """Close several senders within one deadline.

    Args:
        senders: The senders.
        deadline_s: On `time.monotonic()`.

    Returns:
        Items that were not delivered, of all of them and of the whole run.
    """
    for sender in senders:
        sender.begin_close()
    return sum(sender.join(deadline_s) for sender in senders)
