"""Numbers as one line of characters."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_LEVELS = "_.-:=+*#"


def sparkline(values: Sequence[float], columns: int, *, unicode: bool) -> str:
    """Draw a series, its least value lowest and its greatest highest.

    Args:
        values: The series, one value or more.
        columns: Columns to draw at most; where values share one, it shows the largest of them, since a spike is what
            one looks for.
        unicode: Whether the screen can show blocks.

    Returns:
        One character a column; a series without differences is drawn in the middle.
    """
    levels = BLOCKS if unicode else ASCII_LEVELS
    columns = max(1, min(columns, len(values)))
    edges = [number * len(values) // columns for number in range(columns + 1)]
    points = [max(values[start:end]) for start, end in itertools.pairwise(edges)]
    low, high = min(values), max(values)
    if high - low <= 1e-9 * max(abs(high), abs(statistics.fmean(values)), 1e-9):
        return levels[len(levels) // 2] * columns
    return "".join(levels[round((point - low) / (high - low) * (len(levels) - 1))] for point in points)


def bar(share: float, columns: int, *, unicode: bool) -> str:
    """Draw a share as a bar.

    Args:
        share: 0 to 1.
        columns: Columns of a full bar.
        unicode: Whether the screen can show blocks.

    Returns:
        The bar without padding.
    """
    return ("█" if unicode else "#") * round(share * columns)
