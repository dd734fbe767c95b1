"""CPU time of the process over a span."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepmeter.units import milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.capture.span import Span


class CpuTime:
    """CPU time of all threads of the process: above 100 % more than one core was busy.

    Unrelated threads count too, and below a millisecond the percentage is noise.

    Args:
        clock_ns: CPU time of the process in ns.
    """

    def __init__(self, clock_ns: Callable[[], int] = time.process_time_ns) -> None:
        self._clock_ns = clock_ns
        self._started_ns: dict[int, int] = {}  # by span, so that overlapping spans do not exchange their starts

    def start(self, span: Span) -> None:
        """Note the CPU time at a span's start."""
        self._started_ns[id(span)] = self._clock_ns()

    def end(self, span: Span) -> dict[str, float]:
        """Give the CPU time since.

        Returns:
            `cpu_time_ms`, and `cpu_percent` of the span's duration; nothing for a span that was not seen to start.
        """
        started_ns = self._started_ns.pop(id(span), None)
        if started_ns is None:
            return {}
        cpu_ms = milliseconds(self._clock_ns() - started_ns)
        share = cpu_ms / span.duration_ms if span.duration_ms else 0.0
        return {"cpu_time_ms": round(cpu_ms, 3), "cpu_percent": round(100 * share, 1)}
