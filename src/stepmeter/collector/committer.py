"""The thread that makes requests durable, as many as wait with one sync."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from stepmeter.collector.verdicts import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.collector.journal import Record
    from stepmeter.collector.seen import Receipt


@dataclass(frozen=True, slots=True)
class Pending:
    """A request on its way to the journal.

    Attributes:
        record: The request.
        digest: Its hash.
        receipt: What its sender is told once it is durable.
        durable: Done when it is, or can't be.
    """

    record: Record
    digest: bytes
    receipt: Receipt
    durable: Future[None] = field(default_factory=Future)


class Committer:
    """Hands on requests in batches, in the order in which they came.

    Args:
        commit: Makes a batch durable and settles each of its requests; must not raise.
    """

    def __init__(self, commit: Callable[[list[Pending]], None]) -> None:
        self._commit = commit
        self._queue: SimpleQueue[Pending | None] = SimpleQueue()
        self._door = threading.Lock()
        self._closing = False
        self._thread = threading.Thread(target=self._loop, name="stepmeter-journal", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def make_durable(self, pending: Pending) -> None:
        """Wait until a request is durable.

        Args:
            pending: The request.

        Raises:
            UnavailableError: It can't be made durable now.
        """
        with self._door:
            if self._closing:
                raise UnavailableError("the collector is stopping")
            self._queue.put(pending)
        pending.durable.result()

    def close(self) -> None:
        """Let nobody in any more, and end once those inside are settled."""
        with self._door:
            self._closing = True
            self._queue.put(None)
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether requests may still become durable."""
        return self._thread.is_alive()

    def _loop(self) -> None:
        while True:
            batch, last = self._next_batch()
            if batch:
                self._commit(batch)
            if last:
                return

    def _next_batch(self) -> tuple[list[Pending], bool]:
        """All that wait, so that they share one sync: under load a sync takes in what came during the one before."""
        first = self._queue.get()
        batch: list[Pending] = []
        while first is not None:
            batch.append(first)
            try:
                first = self._queue.get_nowait()
            except Empty:
                return batch, False
        return batch, True
