"""How far a mean over steps may be from what another window of the same run would give.

A seeded circular block bootstrap over steps: blocks keep neighbouring steps together, since they resemble each
other; the seed keeps an interval from changing between two readings of a run. All metrics are drawn alike, so that
ratios of them keep what belongs together.

Source: Politis and Romano, "A circular block-resampling procedure for stationary data", 1992.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

BOOTSTRAP_SAMPLES = 200
BOOTSTRAP_SEED = 20_260_101
INTERVAL_PERCENTILES = (2.5, 97.5)
MAX_VALUES_AT_ONCE = 2_000_000
"""Bounds the memory that drawing takes, at 8 bytes a value."""

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

    def means(self, series: Table) -> Table:
        """Mean of each draw.

        Args:
            series: Values on each step, shape (…, steps); NaN stays NaN.

        Returns:
            Shape (…, draws).
        """
        rows = series.reshape(-1, series.shape[-1])
        means = np.empty((len(rows), BOOTSTRAP_SAMPLES))
        at_once = max(1, MAX_VALUES_AT_ONCE // self._starts.size)
        for first in range(0, len(rows), at_once):
            sums = _block_sums(rows[first : first + at_once], self._block)
            means[first : first + at_once] = sums[:, self._starts].sum(axis=2)
        means /= self._starts.shape[1] * self._block
        return means.reshape(*series.shape[:-1], BOOTSTRAP_SAMPLES)


@functools.lru_cache(maxsize=4)
def resampling(n_steps: int) -> Resampling:
    """The draws for a window of so many steps, which all its metrics share."""
    return Resampling(n_steps)


def interval(values: Table) -> tuple[Table, Table]:
    """The 95 % interval of the median over ranks.

    Args:
        values: A figure of each rank in each draw, shape (…, ranks, draws).

    Returns:
        Its lower and upper ends, shape (…).
    """
    low, high = np.percentile(np.median(values, axis=-2), INTERVAL_PERCENTILES, axis=-1)
    return low, high


def _block_sums(table: Table, block: int) -> Table:
    """Sum of each circular run of `block` steps, by the step at which it starts."""
    around = np.concatenate([table, table[:, : block - 1]], axis=1) if block > 1 else table
    sums = np.cumsum(np.pad(around, ((0, 0), (1, 0))), axis=1)
    differences: Table = sums[:, block:] - sums[:, :-block]
    return differences
