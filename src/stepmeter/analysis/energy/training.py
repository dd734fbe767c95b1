"""Energy of training steps: each rank's windows on its device, and what is in nobody's step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from stepmeter.analysis.energy.hosts import with_hosts
from stepmeter.analysis.energy.model import NO_RAPL, TrainingEnergy
from stepmeter.analysis.energy.phases import phases_of
from stepmeter.analysis.energy.repository import load_readings
from stepmeter.analysis.energy.stepping import RankSteps, StepEnergies, energy_of_device, sum_of_rank
from stepmeter.analysis.queries import query

if TYPE_CHECKING:
    from stepmeter.analysis.energy.exact import Ints
    from stepmeter.store.snapshot import Snapshot

ALL_STEPS = 2**62
_AROUND_NS = 1_000_000_000
_NO_GPU = "no step ran on a GPU"
_NO_READINGS = "no device sent energy or power"


def analyze_training_energy(
    source: Snapshot, attempt: int | None, last_steps: int = ALL_STEPS, first_step: int = 0
) -> tuple[TrainingEnergy, tuple[StepEnergies, ...]]:
    """Find out what the steps of an attempt cost.

    Args:
        source: One snapshot of the store.
        attempt: Which attempt; None when there are no steps.
        last_steps: How many steps of each rank at most, the latest; where there are more, devices' readings count
            from a second before the first of these to a second after the last.
        first_step: Steps before this one are left out likewise.

    Returns:
        The sums, and each rank's steps one by one.

    Raises:
        CheckFailedError: Steps and the gaps between them do not add up to the counter.
    """
    ranks = [] if attempt is None else load_steps(source, attempt, last_steps, first_step)
    if not ranks:
        return TrainingEnergy(reason=_NO_GPU, host_reason=NO_RAPL), ()
    span = _span_ns(ranks) if first_step or any(len(rank.step) >= last_steps for rank in ranks) else ()
    readings = load_readings(source, attempt, *span)
    found: list[StepEnergies] = []
    sums = []
    for device in readings.gpus:
        estimated, of_device = energy_of_device(device, [rank for rank in ranks if rank.hw_id == device.hw_id])
        found += estimated
        sums.append(of_device)
    found.sort(key=lambda one: one.steps.rank)
    reason = None if sums else _NO_GPU if all(rank.hw_id is None for rank in ranks) else _NO_READINGS
    of_gpus = TrainingEnergy(tuple(sums), tuple(sum_of_rank(one, one.steps.hw_id or "") for one in found), reason)
    return with_hosts(of_gpus, readings.hosts, ranks), tuple(found)


def _span_ns(ranks: Sequence[RankSteps]) -> tuple[int, int]:
    """Long enough that the ticks around the first and the last step are in it."""
    first_ns = min(int(rank.start_ns[0]) for rank in ranks)
    return first_ns - _AROUND_NS, max(int(rank.end_ns[-1]) for rank in ranks) + _AROUND_NS


def load_steps(source: Snapshot, attempt: int, last_steps: int = ALL_STEPS, first_step: int = 0) -> list[RankSteps]:
    """Read the steps of all ranks that have a GPU, or whose host's CPUs were read.

    Args:
        source: One snapshot of the store.
        attempt: Which attempt.
        last_steps: How many steps of each rank at most, the latest.
        first_step: Steps before this one are left out.

    Returns:
        One entry a rank.
    """
    hosts = {host for (host,) in source.rows(query("energy_hosts"))}
    ranks = [
        row
        for row in source.rows(query("energy_ranks"), (attempt, first_step))
        if row[1] is not None or row[4] in hosts
    ]
    # a window of all ranks is one statement, since each costs more than its rows; a whole run is read rank by rank
    window = source.columns(query("energy_steps"), (attempt, None, last_steps, first_step)) if first_step else None
    found = []
    for rank, hw_id, shift_ns, is_instance, host in ranks:
        if window is None:
            columns = source.columns(query("energy_steps"), (attempt, rank, last_steps, 0))
        else:
            columns = {name: column[window["rank"] == rank] for name, column in window.items()}
        if len(columns["step"]):
            steps = _rank_steps(rank, hw_id, shift_ns, columns)
            found.append(replace(steps, is_instance=is_instance, host=host))
    return found


def _rank_steps(rank: int, hw_id: str | None, shift_ns: int, columns: Mapping[str, Ints]) -> RankSteps:
    start_ns, end_ns = columns["start_ns"] + shift_ns, columns["end_ns"] + shift_ns
    return RankSteps(
        rank=rank,
        hw_id=hw_id,
        step=columns["step"],
        start_ns=start_ns,
        end_ns=end_ns,
        samples=columns["samples"],
        tokens=columns["tokens"],
        is_warmup=columns["warmup"].astype(bool),
        phases=phases_of(start_ns, end_ns, columns, shift_ns),
    )
