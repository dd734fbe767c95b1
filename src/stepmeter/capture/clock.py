"""Monotonic time, and how it is anchored to the wall clock."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

monotonic_ns = time.monotonic_ns
"""Nanoseconds on the clock that all captures use; the same for all processes of one boot."""

_READS: Final = 5
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class ClockAnchor:
    """One moment on both clocks.

    Attributes:
        unix_ns: The moment as Unix time in ns.
        monotonic_ns: The same moment on the monotonic clock in ns.
    """

    unix_ns: int
    monotonic_ns: int

    def unix_ns_of(self, monotonic_ns: int) -> int:
        """Place a monotonic moment on the wall axis.

        Args:
            monotonic_ns: A moment on the monotonic clock in ns.

        Returns:
            Unix time in ns; later slews of the wall clock do not show.
        """
        return self.unix_ns + monotonic_ns - self.monotonic_ns

    def monotonic_ns_of(self, unix_ns: int) -> int:
        """Place a moment of the wall axis on the monotonic clock.

        Args:
            unix_ns: Unix time in ns.

        Returns:
            The moment on the monotonic clock in ns.
        """
        return self.monotonic_ns + unix_ns - self.unix_ns


def read_anchor() -> ClockAnchor:
    """Read both clocks as nearly at once as a few attempts allow.

    Returns:
        The pair whose wall reading lies within the shortest monotonic interval, at its middle.
    """
    pairs = []
    for _ in range(_READS):
        before_ns = monotonic_ns()
        unix_ns = time.time_ns()
        after_ns = monotonic_ns()
        pairs.append((after_ns - before_ns, unix_ns, (before_ns + after_ns) // 2))
    _, unix_ns, at_ns = min(pairs)
    return ClockAnchor(unix_ns, at_ns)


def boot_id() -> str | None:
    """Name the boot to which this machine's monotonic clock belongs.

    Returns:
        The kernel's boot id, or None where there is none.
    """
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
