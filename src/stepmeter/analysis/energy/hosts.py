"""What CPU packages and memory took during steps, by RAPL's counters; of the whole host, whoever ran there.

Several packages and their memory are one host's energy; ranks that are in a step at one moment share it evenly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from stepmeter.analysis.energy.attribution import DeviceReadings
from stepmeter.analysis.energy.model import METHODS, NO_RAPL, DeviceEnergy, Estimates, RankEnergy, TrainingEnergy
from stepmeter.analysis.energy.stepping import RankSteps, StepEnergies, energy_of_device, sum_of_rank

_UNAVAILABLE = METHODS.index("unavailable")


def with_hosts(
    found: TrainingEnergy, hosts: Mapping[str, Sequence[DeviceReadings]], ranks: Sequence[RankSteps]
) -> TrainingEnergy:
    """Add the energy of hosts to that of GPUs.

    Args:
        found: Energy of the GPUs.
        hosts: Readings of packages and memory by name of the host.
        ranks: Steps of all ranks.

    Returns:
        Both.

    Raises:
        CheckFailedError: Steps and the gaps between them do not add up to a counter.
    """
    devices: list[DeviceEnergy] = []
    sums: list[RankEnergy] = []
    for host, zones in hosts.items():
        on_it = [rank for rank in ranks if rank.host == host]
        if on_it:
            by_zone = [energy_of_device(zone, on_it) for zone in zones]
            devices += [device for _, device in by_zone]
            sums += [_sum_of_host([steps[index] for steps, _ in by_zone], host) for index in range(len(on_it))]
    sums.sort(key=lambda one: one.rank)
    reason = None if sums else NO_RAPL
    return replace(found, host_devices=tuple(devices), host_ranks=tuple(sums), host_reason=reason)


def _sum_of_host(by_zone: Sequence[StepEnergies], host: str) -> RankEnergy:
    together = StepEnergies(by_zone[0].steps, total([one.estimates for one in by_zone]))
    return replace(sum_of_rank(together, host), phases_mj={}, clock="cpu")


def total(parts: Sequence[Estimates]) -> Estimates:
    """Energies of the same windows on several devices together.

    Args:
        parts: One for each device, one or more.

    Returns:
        Their sums, as sure as the least sure of them; unavailable where one is.
    """
    method = np.max([part.method for part in parts], axis=0)
    known = method != _UNAVAILABLE

    def added(column: str) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        return np.where(known, np.sum([getattr(part, column) for part in parts], axis=0), -1)

    ticks = np.min([part.ticks for part in parts], axis=0)
    return Estimates(added("value_mj"), added("lower_mj"), added("upper_mj"), method, ticks)
