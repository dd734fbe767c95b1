"""Where a device's moments lie on the host's clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

_REANCHOR_NS: Final = 8_000_000_000
"""`elapsed_time` is a float32 of milliseconds: up to 8 s it tells half a microsecond."""


class DeviceAxis:
    """Places device events on the monotonic clock of the host.

    An event can't have happened before the host asked for it, nor after the host saw it done; between these limits
    elapsed device time is chained from an anchor, so that neither a deep queue nor the drift of two clocks shows.

    Args:
        elapsed_ns: Device time from one event to another in ns.
    """

    __slots__ = ("_anchor", "_anchor_ns", "_elapsed_ns")

    def __init__(self, elapsed_ns: Callable[[Any, Any], int]) -> None:
        self._elapsed_ns = elapsed_ns
        self._anchor: Any = None
        self._anchor_ns = 0

    def place(self, event: Any, asked_ns: int, done_ns: int) -> tuple[int, Any]:
        """Say when an event happened.

        Args:
            event: An event that is done.
            asked_ns: When the host recorded it, monotonic.
            done_ns: When the host saw it done, monotonic.

        Returns:
            The moment, monotonic, and an event that is no longer needed; the anchor is kept.
        """
        if self._anchor is None:
            self._anchor, self._anchor_ns = event, asked_ns
            return asked_ns, None
        since_ns = self._elapsed_ns(self._anchor, event)
        at_ns = min(max(self._anchor_ns + since_ns, asked_ns), done_ns)
        self._anchor_ns = at_ns - since_ns
        if since_ns < _REANCHOR_NS:
            return at_ns, event
        unneeded, self._anchor, self._anchor_ns = self._anchor, event, at_ns
        return at_ns, unneeded

    def forget(self) -> None:
        """Begin anew with the next event."""
        self._anchor = None
