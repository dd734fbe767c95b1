"""Sums over power samples as exact integers, in numpy, at any length of run.

The unit is the doubled mW·ns: a trapezoid is (P₀ + P₁)·Δt of them, so no halving loses a bit. An int64 holds about two
hours of that at 600 W, therefore sums are kept in two limbs of 31 bits and up.

Source: the trajectory decision record, "carried in integer arithmetic (doubled mW·ns, floored to mJ once at the end)".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

DOUBLED_PER_MJ = 2_000_000_000
"""Doubled mW·ns in a mJ."""

_LIMB_BITS = 31
_LIMB_MASK = (1 << _LIMB_BITS) - 1


@dataclass(frozen=True, slots=True)
class DoubledSums:
    """Sums of doubled mW·ns.

    Attributes:
        high: The part above 31 bits.
        low: The rest; may exceed 31 bits.
    """

    high: Ints
    low: Ints

    def __getitem__(self, index: Any) -> DoubledSums:
        """Choose sums as numpy indexes an array."""
        return DoubledSums(self.high[index], self.low[index])

    def __sub__(self, other: DoubledSums) -> DoubledSums:
        """Subtract one by one."""
        return DoubledSums(self.high - other.high, self.low - other.low)

    def total(self) -> int:
        """All of them together, as an exact integer."""
        return (int(self.high.sum()) << _LIMB_BITS) + int(self.low.sum())

    def integers(self) -> list[int]:
        """Each as an exact integer."""
        return [(high << _LIMB_BITS) + low for high, low in zip(self.high.tolist(), self.low.tolist(), strict=True)]

    def floored_mj(self) -> Ints:
        """Each floored to mJ.

        Returns:
            Energies in mJ; exact whatever the size.
        """
        if not len(self.high) or int(np.abs(self.high).max()) < 1 << _LIMB_BITS:
            return ((self.high << _LIMB_BITS) + self.low) // DOUBLED_PER_MJ
        return np.array([value // DOUBLED_PER_MJ for value in self.integers()], dtype=np.int64)


def trapezoids(time_ns: Ints, power_mw: Ints) -> DoubledSums:
    """The energy of each segment between neighbouring samples.

    Args:
        time_ns: Times in ns, ascending; shape (n,).
        power_mw: Power in mW, 0 or more and below 2³¹; shape (n,).

    Returns:
        Doubled mW·ns of the n - 1 segments, the low limb below 2³¹.
    """
    duration_ns = np.diff(time_ns)
    doubled_mw = power_mw[:-1] + power_mw[1:]
    low = doubled_mw * (duration_ns & _LIMB_MASK)
    high = doubled_mw * (duration_ns >> _LIMB_BITS) + (low >> _LIMB_BITS)
    return DoubledSums(high, low & _LIMB_MASK)


def running(segments: DoubledSums) -> DoubledSums:
    """Sums of all segments before each sample.

    Args:
        segments: Energies of n - 1 segments.

    Returns:
        n sums, the first 0; the difference of two is the energy between their samples.
    """
    start = np.zeros(1, dtype=np.int64)
    return DoubledSums(
        np.concatenate([start, np.cumsum(segments.high)]), np.concatenate([start, np.cumsum(segments.low)])
    )
