"""Energy of steps that overlap, shared among them; shares still add up to what was measured, exactly."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.analysis.energy.steps import TrajectoryStep
from stepmeter.analysis.energy.trajectory import ApportionBy, Sources
from stepmeter.errors import UsageError

_RATE_SCALE = 10**18
"""Weights are whole numbers, so that shares add up exactly."""


def apportion(
    steps: Sequence[TrajectoryStep], timelines: Sequence[PowerTimeline], sources: Sources, by: ApportionBy
) -> list[int]:
    """Share each whole segment among the steps that hold it.

    Args:
        steps: Steps, which may overlap.
        timelines: Power of each device.
        sources: The server's counters, for `device_time`.
        by: `equal`: every step the same; `tokens`: by tokens of its own usage per time; `device_time`: by time in
            prefill and decode that the server counted in its window.

    Returns:
        Doubled mW·ns of each step.

    Raises:
        UsageError: The steps do not have what `by` needs.
    """
    weights = [_weight(step, sources, by) for step in steps]
    shares = [0] * len(steps)
    for timeline in timelines:
        start_ns = np.array([step.start_unix_ns for step in steps], dtype=np.int64)
        end_ns = np.array([step.end_unix_ns for step in steps], dtype=np.int64)
        first, last = (edge.tolist() for edge in timeline.inside(start_ns, end_ns))
        edges = sorted({*first, *last})
        for begin, end in itertools.pairwise(edges):
            active = [i for i in range(len(steps)) if first[i] <= begin and end <= last[i]]
            energy = timeline.segments[begin:end].total()
            for index, share in zip(active, _split(energy, [weights[i] for i in active]), strict=True):
                shares[index] += share
    return shares


def _weight(step: TrajectoryStep, sources: Sources, by: ApportionBy) -> int:
    if by == "equal":
        return 1
    amount = _tokens(step) if by == "tokens" else _device_time_ns(step, sources)
    if amount is None:
        what = "tokens of its own" if by == "tokens" else "prefill or decode time of the server in its window"
        raise UsageError(f"step {step.step_id} has no {what}, which --apportion {by} needs; use --apportion equal")
    return amount * _RATE_SCALE // max(step.end_unix_ns - step.start_unix_ns, 1)


def _tokens(step: TrajectoryStep) -> int | None:
    if step.kind == "tool":
        return 0
    if step.input_tokens is None and step.output_tokens is None:
        return None
    return (step.input_tokens or 0) + (step.output_tokens or 0)


def _device_time_ns(step: TrajectoryStep, sources: Sources) -> int | None:
    if step.kind == "tool":
        return 0
    window = (step.start_unix_ns, step.end_unix_ns)
    prefill_ns = sources.counters.delta("prefill_time_ns", *window)
    decode_ns = sources.counters.delta("decode_time_ns", *window)
    return None if prefill_ns is None and decode_ns is None else (prefill_ns or 0) + (decode_ns or 0)


def _split(energy: int, weights: Sequence[int]) -> list[int]:
    """By cumulative floors, so that nothing is lost; evenly where no weight says otherwise."""
    if not any(weights):
        weights = [1] * len(weights)
    until = [energy * done // sum(weights) for done in itertools.accumulate(weights)]
    return [upper - lower for lower, upper in zip([0, *until], until, strict=False)]
