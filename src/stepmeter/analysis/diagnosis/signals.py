"""What rules read off a window in common: worst ranks, missing signals, the words for a metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Abstention

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepmeter.analysis.step_time.model import StepTimeWindow

SIGNALS = {
    "input_wait": "input_wait_ms",
    "forward": "forward_ms",
    "backward": "backward_ms",
    "optimizer": "optimizer_ms",
    "traced": "traced_step_time_ms",
}
"""Signals that a rule may miss, in the order in which they are named, with their metric."""

WORDS = {
    "input_wait_ms": "input wait",
    "h2d_ms": "H2D transfers",
    "forward_ms": "forward",
    "backward_ms": "backward",
    "optimizer_ms": "optimizer",
    "residual_ms": "residual time",
    "compute_ms": "compute",
    "traced_step_time_ms": "traced time",
    "step_time_ms": "step time",
}
"""Metrics as a sentence names them."""

STEP_SIGNALS = ("input_wait", "traced")
COMPUTE_SIGNALS = ("input_wait", "forward", "backward", "optimizer", "traced")


def phase_of(metric: str) -> str:
    """The phase that a metric measures."""
    return metric.removesuffix("_ms")


def worst_rank(window: StepTimeWindow, metric: str) -> tuple[int, ...]:
    """The rank with the largest value, in a tuple; empty when there are no ranks to compare."""
    found = window.metrics.get(metric)
    return () if found is None or len(window.ranks) < 2 else (found.worst_rank,)


def skew(window: StepTimeWindow, metric: str) -> float | None:
    """Skew of a metric over ranks."""
    found = window.metrics.get(metric)
    return None if found is None else found.skew


def abstain(window: StepTimeWindow, needed: Sequence[str]) -> Abstention | None:
    """Name the needed signals that some participating rank lacks.

    Args:
        window: The analyzed window.
        needed: Keys of `SIGNALS`.

    Returns:
        None when none is missing: then the rule has nothing to say for another reason.
    """
    missing = tuple(signal for signal in needed if coverage(window, signal) < len(window.ranks))
    return Abstention(missing) if missing else None


def coverage(window: StepTimeWindow, signal: str) -> int:
    """How many participating ranks measured a signal."""
    metric = window.metrics.get(SIGNALS[signal])
    return 0 if metric is None else len(metric.ranks)


def clock_words(window: StepTimeWindow) -> str:
    """The clock as a sentence names it."""
    return "GPU" if window.clock == "gpu" else "CPU"
