"""How far a mean over steps may be from what another window of the same run would give.

A seeded circular block bootstrap over steps: blocks keep neighbouring steps together, since they resemble each
other; the seed keeps an interval from changing between two readings of a run. All metrics are drawn alike, so that
ratios of them keep what belongs together.

Source: Politis and Romano, "A circular block-resampling procedure for stationary data", 1992.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

BOOTSTRAP_SAMPLES = 200
BOOTSTRAP_SEED = 20_260_101
INTERVAL_PERCENTILES = (2.5, 97.5)

Table = npt.NDArray[np.float64]


class Resampling:
    """The draws for one window."""

    def __init__(self, n_steps: int) -> None:
        """Draw.

        Args:
            n_steps: Steps of the window, 1 or more.
        """
        self._block = max(1, round(n_steps ** (1 / 3)))
        generator = np.random.default_rng(BOOTSTRAP_SEED)
        self._starts = generator.integers(0, n_steps, size=(BOOTSTRAP_SAMPLES, -(-n_steps // self._block)))

    def means(self, series: Sequence[Sequence[float]] | Table) -> Table:
        """Mean of each draw.

        Args:
            series: A metric of each rank, shape (ranks, steps).

        Returns:
            Shape (ranks, draws).
        """
        sums = _block_sums(np.asarray(series, dtype=np.float64), self._block)
        totals: Table = sums[:, self._starts].sum(axis=2)
        means: Table = totals / (self._starts.shape[1] * self._block)
        return means


@functools.lru_cache(maxsize=4)
def resampling(n_steps: int) -> Resampling:
    """The draws for a window of so many steps, which all its metrics share."""
    return Resampling(n_steps)


def interval(values: Table) -> tuple[float, float]:
    """The 95 % interval of the median over ranks.

    Args:
        values: A figure of each rank in each draw, shape (ranks, draws).

    Returns:
        Its lower and upper end.
    """
    low, high = np.percentile(np.median(values, axis=0), INTERVAL_PERCENTILES)
    return float(low), float(high)


def _block_sums(table: Table, block: int) -> Table:
    """Sum of each circular run of `block` steps, by the step at which it starts."""
    around = np.concatenate([table, table[:, : block - 1]], axis=1) if block > 1 else table
    sums = np.cumsum(np.pad(around, ((0, 0), (1, 0))), axis=1)
    differences: Table = sums[:, block:] - sums[:, :-block]
    return differences
