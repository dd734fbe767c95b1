"""What the collector counts about itself, and how it says so without flooding its log."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import Final

LOGGER: Final = logging.getLogger("stepmeter.collector")

_SECONDS_BETWEEN_LINES: Final = 1.0


class Health:
    """Counters, and warnings of which each kind is logged at most once a second."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._logged_at_s: dict[str, float] = {}

    def count(self, name: str, number: int = 1) -> None:
        """Add to a counter.

        Args:
            name: The counter.
            number: How many.
        """
        with self._lock:
            self._counts[name] += number

    def warn(self, counter: str, message: str, number: int = 1) -> None:
        """Count something that went wrong and log it with the count so far.

        Args:
            counter: The counter, which is also the kind of the warning.
            message: One line for the log.
            number: How many.
        """
        now_s = time.monotonic()
        with self._lock:
            self._counts[counter] += number
            total = self._counts[counter]
            last_s = self._logged_at_s.get(counter)
            if last_s is not None and now_s - last_s < _SECONDS_BETWEEN_LINES:
                return
            self._logged_at_s[counter] = now_s
        LOGGER.warning("%s (%s: %d so far)", message, counter, total)

    def counts(self) -> dict[str, int]:
        """Read all counters.

        Returns:
            Those that are not zero, by name.
        """
        with self._lock:
            return dict(self._counts)
