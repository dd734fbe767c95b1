"""One reading of a background sampler, on its way to the drain."""

from __future__ import annotations

from typing import NamedTuple

Attributes = tuple[tuple[str, str | int], ...]


class Reading(NamedTuple):
    """A value of one series at one moment.

    Attributes:
        metric: Name of the metric.
        value: In the metric's unit; a counter's is its total.
        at_ns: When it was read, monotonic.
        attributes: Of the series, without rank and run.
    """

    metric: str
    value: float
    at_ns: int
    attributes: Attributes = ()
