"""Requests seen before: senders that did not hear the answer send the same bytes again."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.collector.health import Health
    from stepmeter.collector.journal import Record

REMEMBERED: Final = 65_536
"""How many of the latest requests are known again."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request.

    Attributes:
        rejected: Spans or data points in it that the store can't hold.
        reason: What was wrong with the first of them.
    """

    rejected: int = 0
    reason: str = ""


class SeenRequests:
    """The latest requests by the hash of their bytes, with those that are being made durable right now.

    Args:
        health: Counters.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._lock = threading.Lock()
        self._receipts: OrderedDict[bytes, Receipt] = OrderedDict()
        self._in_flight: dict[bytes, Future[Receipt]] = {}

    def once(self, digest: bytes, make: Callable[[], Receipt]) -> Receipt:
        """Do what a request asks for, unless it was done or is being done.

        Args:
            digest: The request's hash.
            make: Makes the request durable; called by one thread for one digest at a time.

        Returns:
            The receipt of the one time that it was done.
        """
        with self._lock:
            known = self._receipts.get(digest)
            twin = self._in_flight.get(digest)
            if known is None and twin is None:
                mine = self._in_flight[digest] = Future()
        if known is None and twin is None:
            return self._make(digest, mine, make)
        self._health.count("requests_deduplicated")
        return known or twin.result()  # type: ignore[union-attr] # one of them is there

    def remember(self, digest: bytes, receipt: Receipt) -> None:
        """Count a request as done.

        Args:
            digest: The request's hash.
            receipt: What became of it.
        """
        self._receipts[digest] = receipt
        if len(self._receipts) > REMEMBERED:
            self._receipts.popitem(last=False)

    def _make(self, digest: bytes, mine: Future[Receipt], make: Callable[[], Receipt]) -> Receipt:
        try:
            receipt = make()
        except BaseException as error:
            with self._lock:
                del self._in_flight[digest]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._in_flight[digest]
            self.remember(digest, receipt)
        mine.set_result(receipt)
        return receipt


def digest_of(record: Record) -> bytes:
    """Hash a request.

    Args:
        record: The request.

    Returns:
        16 bytes that differ for different signals, encodings and bodies.
    """
    # twice as quick as BLAKE2 where the processor computes it, which nearly all do by now
    digest = hashlib.sha256(bytes((record.signal.code, record.encoding.value)))
    digest.update(record.body)
    return digest.digest()[:16]
