"""How repeated measurements of one span path in one row become one value."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

from stepmeter.conventions.rows import number

MAXIMA: Final = frozenset({"gpu_mem_peak_mb", "gpu_mem_used_mb", "gpu_power_max_w"})
MEANS: Final = frozenset({"cpu_percent", "gpu_percent", "gpu_power_w", "gpu_energy_share"})
"""Means are weighted by the spans' durations; what is in neither set is a sum."""


class Weighted(NamedTuple):
    """A value so far.

    Attributes:
        value: The value, or None for none.
        weight: Time that it stands for, in ms; for means.
    """

    value: Any
    weight: float


def combine(name: str, before: Weighted, value: Any, duration_ms: float) -> Weighted:
    """Add a measurement.

    Args:
        name: What was measured, without its path.
        before: What earlier spans gave.
        value: The measurement.
        duration_ms: Of its span.

    Returns:
        The value from now on. What is no number replaces what was there, and starts anew.
    """
    new, old = number(value), number(before.value)
    if new is None or old is None:
        return Weighted(value, duration_ms)
    if name in MAXIMA:
        return Weighted(new if math.isnan(new) or new > old else old, 0.0)
    if name not in MEANS:
        return Weighted(old + new, 0.0)
    total = before.weight + duration_ms
    if total == 0:
        return Weighted(new, 0.0)
    if duration_ms == 0:
        return before
    return Weighted((old * before.weight + new * duration_ms) / total, total)
