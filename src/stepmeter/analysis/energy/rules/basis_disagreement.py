"""BASIS_DISAGREEMENT: a device's energy counter and its power readings tell of different energies.

*Fires*, as a warning, when integrated power is more than 10 % off the counter over the time that both cover.
*Why*: power readings that are averaged, seldom refreshed or seen only a part of the time miss what happens between.
*Next*: trust the counter; power readings of short runs and of boards that see 25 of 100 ms say little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.energy.model import BASES_DIFFER_SHARE
from stepmeter.units import format_energy

if TYPE_CHECKING:
    from stepmeter.analysis.energy.model import TrainingEnergy


def check(facts: TrainingEnergy) -> Issue | None:
    """Judge the device whose bases are furthest apart."""
    apart = [(abs(device.bases.ratio - 1), device) for device in facts.devices if device.bases.ratio is not None]
    differing = [(distance, device) for distance, device in apart if device.bases.differ]
    if not differing:
        return None
    distance, device = max(differing, key=lambda pair: (pair[0], pair[1].hw_id))
    bases = device.bases
    return Issue(
        kind="BASIS_DISAGREEMENT",
        status="BASIS DISAGREEMENT",
        severity="warn",
        summary=(
            f"Integrated power of {device.hw_id} is {format_energy(bases.power_integral_mj)}, "
            f"its counter's energy {format_energy(bases.counter_mj)}."
        ),
        action="Trust the counter; see whether the board's power readings are averages or stale.",
        metric="integral_to_counter",
        score=min(distance, 1.0),
        evidence={"hw_id": device.hw_id, "integral_to_counter": bases.ratio},
    )


RULE = Rule(("BASIS_DISAGREEMENT",), check, __doc__, {"warn": BASES_DIFFER_SHARE})
