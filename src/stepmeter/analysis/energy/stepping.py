"""Steps of ranks on one device: what each took, what is in nobody's step, and that both are what the counter says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepmeter.analysis.energy.attribution import DeviceReadings, estimate
from stepmeter.analysis.energy.exact import DOUBLED_PER_MJ, Ints
from stepmeter.analysis.energy.model import METHODS, DeviceEnergy, Estimates, RankEnergy
from stepmeter.analysis.energy.phases import BusyPhases
from stepmeter.analysis.energy.sharing import Sharing, union
from stepmeter.errors import CheckFailedError

_LEAST_FOR_INTERVAL = 6
"""Of fewer steps even the least and the greatest are no 95 % interval of the median."""


@dataclass(frozen=True, slots=True)
class RankSteps:
    """The steps of one rank, in the order of their ends.

    Attributes:
        rank: Global rank.
        hw_id: UUID of its GPU; None without one.
        host: Name of its host, empty where not known.
        step: Their numbers.
        start_ns: Starts, on the clock of the device's readings, in ns.
        end_ns: Ends.
        samples: Samples; -1 where not known.
        tokens: Tokens; -1 where not known.
        is_warmup: Whether they belong to the warm-up.
        is_instance: Whether the device is the GPU of a MIG instance, whose other parts others may use.
        phases: Where the phases' work was.
    """

    rank: int
    hw_id: str | None
    step: Ints
    start_ns: Ints
    end_ns: Ints
    samples: Ints
    tokens: Ints
    is_warmup: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
    phases: BusyPhases
    is_instance: bool = False
    host: str = ""


@dataclass(frozen=True, slots=True)
class StepEnergies:
    """Energy of one rank's steps, one by one."""

    steps: RankSteps
    estimates: Estimates


def energy_of_device(device: DeviceReadings, ranks: Sequence[RankSteps]) -> tuple[list[StepEnergies], DeviceEnergy]:
    """Energy of all steps on one device.

    Args:
        device: Its readings.
        ranks: Steps of the ranks that work on it; the energy of moments that several share is apportioned evenly.

    Returns:
        The steps one by one, and the device's sum.

    Raises:
        CheckFailedError: Steps and the gaps between them do not add up to the counter.
    """
    busy = union(_join(ranks, "start_ns"), _join(ranks, "end_ns"))
    # what phases of the device's work draw says nothing of the CPUs
    loads = ranks[0].phases.windows if len(ranks) == 1 and device.kind == "gpu" else (busy,)
    sharing = device.sharing(*loads)
    found = [StepEnergies(rank, estimate(device, rank.start_ns, rank.end_ns, sharing)) for rank in ranks]
    if len(ranks) == 1 and sharing is not None:
        _check(sharing, ranks[0], found[0].estimates)
    if len(ranks) > 1:
        found = [StepEnergies(one.steps, _apportioned(one, ranks, device, sharing)) for one in found]
    steps_mj = sum(int(one.estimates.value_mj[one.estimates.value_mj >= 0].sum()) for one in found)
    bases = device.bases()
    first_ns, last_ns = device.span_ns
    if sharing is None:
        total_mj = 0 if device.power is None else device.power.total() // DOUBLED_PER_MJ
    else:
        total_mj = int(sharing.counter.grown_mj[-1])
    inside = busy.time_before(np.array([first_ns, last_ns]))
    duration_ns = last_ns - first_ns
    return found, DeviceEnergy(
        hw_id=device.hw_id,
        bases=bases,
        total_mj=total_mj,
        steps_mj=steps_mj,
        idle_mj=total_mj - steps_mj,
        duration_ns=duration_ns,
        idle_ns=duration_ns - int(inside[1] - inside[0]),
        update_period_ns=None if sharing is None else sharing.counter.update_period_ns,
        resets=0 if sharing is None else int(sharing.counter.is_reset.sum()),
        ranks=tuple(rank.rank for rank in ranks),
        other_processes=device.other_processes,
        is_instance=any(rank.is_instance for rank in ranks),
        throttled_share=device.throttled_share,
        kind=device.kind,
        is_module=device.is_module,
    )


def _join(ranks: Sequence[RankSteps], column: str) -> Ints:
    found = [getattr(rank, column) for rank in ranks]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _check(sharing: Sharing, steps: RankSteps, estimates: Estimates) -> None:
    """Steps and the gaps between them, each computed on its own, must be what the counter rose by."""
    counter = sharing.counter
    covered = counter.covers(steps.start_ns, steps.end_ns)
    start_ns, end_ns = steps.start_ns[covered], steps.end_ns[covered]
    if not len(start_ns) or (start_ns[1:] < end_ns[:-1]).any():
        return
    edges = np.concatenate([counter.tick_ns[:1], end_ns]), np.concatenate([start_ns, counter.tick_ns[-1:]])
    gaps_mj = int((sharing.until(edges[1]) - sharing.until(edges[0])).sum())
    whole_mj = int(counter.grown_mj[-1])
    if gaps_mj + int(estimates.value_mj[covered].sum()) != whole_mj:
        raise CheckFailedError(f"{counter.hw_id}: steps and gaps differ from the counter's {whole_mj} mJ")


def _until(at_ns: Ints, device: DeviceReadings, sharing: Sharing | None) -> Ints:
    if sharing is not None:
        return sharing.until(at_ns)
    return np.zeros_like(at_ns) if device.power is None else np.rint(device.power.until(at_ns)).astype(np.int64)


def _apportioned(
    one: StepEnergies, ranks: Sequence[RankSteps], device: DeviceReadings, sharing: Sharing | None
) -> Estimates:
    """A rank's share of its windows: each moment's energy divided by the ranks that were in a step then."""
    alone = one.estimates
    covered = alone.value_mj >= 0
    first_ns, last_ns = device.span_ns
    starts, ends = (np.clip(_join(ranks, side), first_ns, last_ns) for side in ("start_ns", "end_ns"))
    edges = np.unique(np.concatenate([starts, ends]))
    depth = np.searchsorted(np.sort(starts), edges, side="right") - np.searchsorted(np.sort(ends), edges, side="right")
    pieces = np.diff(_until(edges, device, sharing)) / np.maximum(depth[:-1], 1)
    until = np.concatenate([[0.0], np.cumsum(pieces)])
    position = [np.searchsorted(edges, side[covered]) for side in (one.steps.start_ns, one.steps.end_ns)]
    value = alone.value_mj.copy()
    value[covered] = np.rint(until[position[1]]) - np.rint(until[position[0]])
    share = np.divide(value, alone.value_mj, out=np.ones(len(value)), where=alone.value_mj > 0)
    lower = np.where(covered, np.floor(alone.lower_mj * share), -1).astype(np.int64)
    upper = np.where(covered, np.ceil(alone.upper_mj * share), -1).astype(np.int64)
    return Estimates(value, lower, upper, alone.method, alone.ticks)


def sum_of_rank(one: StepEnergies, hw_id: str) -> RankEnergy:
    """Sum a rank's steps up.

    Args:
        one: Its steps with their energies.
        hw_id: UUID of its GPU, or the name of its host.

    Returns:
        The sums.
    """
    steps, estimates = one.steps, one.estimates
    known = estimates.value_mj >= 0
    settled = known & ~steps.is_warmup
    settled = settled if settled.any() else known
    half_mj = (estimates.upper_mj - estimates.lower_mj)[settled] / 2
    counts = np.bincount(estimates.method[known], minlength=len(METHODS)).tolist()
    total_mj = int(estimates.value_mj[known].sum())
    return RankEnergy(
        rank=steps.rank,
        hw_id=hw_id,
        steps=int(known.sum()),
        unavailable=int((~known).sum()),
        total_mj=total_mj,
        lower_mj=int(estimates.lower_mj[known].sum()),
        upper_mj=int(estimates.upper_mj[known].sum()),
        median_mj=float(np.median(estimates.value_mj[settled])) if known.any() else None,
        half_width_mj=float(np.median(half_mj)) if known.any() else None,
        samples=_counted(steps.samples[known]),
        tokens=_counted(steps.tokens[known]),
        median_ns=int(np.median((steps.end_ns - steps.start_ns)[settled])) if known.any() else 0,
        methods={method: count for method, count in zip(METHODS, counts, strict=True) if count},
        phases_mj=steps.phases.apportion(np.maximum(estimates.value_mj, 0), total_mj),
        clock="gpu" if steps.phases.has_gpu_clock else "cpu",
        median_interval_mj=_median_interval(estimates.value_mj[settled & known]),
    )


def _median_interval(values: Ints) -> tuple[float, float] | None:
    """Order statistics around the median.

    Source: Conover, Practical Nonparametric Statistics, 3rd ed., 3.2: ranks n/2 -+ 1.96 * sqrt(n) / 2.
    """
    count = len(values)
    if count < _LEAST_FOR_INTERVAL:
        return None
    ordered = np.sort(values)
    half = 0.98 * math.sqrt(count)
    low, high = max(math.floor(count / 2 - half), 0), min(math.ceil(count / 2 + half), count - 1)
    return float(ordered[low]), float(ordered[high])


def _counted(counts: Ints) -> int | None:
    """None unless every step knows its count, since a sum over some would price the others at nothing."""
    return int(counts.sum()) if len(counts) and (counts >= 0).all() else None
