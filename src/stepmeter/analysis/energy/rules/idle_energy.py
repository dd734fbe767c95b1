"""IDLE_ENERGY: devices drew a notable part of their energy while nobody was in a step.

*Fires* when the energy outside any step is 10 % of the devices' energy (warning) or 30 % (critical) or more.
*Why*: start, evaluation, checkpoints and pauses between steps cost energy that no step shows.
*Next*: see what runs between steps: `stepmeter energy RUN` has the idle time of each device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import reaches
from stepmeter.units import NS_PER_S, format_duration, format_energy, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.energy.model import TrainingEnergy

WARN_SHARE = 0.10
CRIT_SHARE = 0.30


def check(facts: TrainingEnergy) -> Issue | None:
    """Judge the energy outside steps."""
    share = facts.idle_share
    if share is None or not reaches(share, WARN_SHARE):
        return None
    idle_mj = sum(device.idle_mj for device in facts.devices)
    idle_ns = sum(device.idle_ns for device in facts.devices)
    return Issue(
        kind="IDLE_ENERGY",
        status="IDLE ENERGY",
        severity="crit" if reaches(share, CRIT_SHARE) else "warn",
        summary=(
            f"{format_share(share)} of the devices' energy ({format_energy(idle_mj)} in "
            f"{format_duration(idle_ns / NS_PER_S)}) was in nobody's step."
        ),
        action="Shorten what runs between steps: start, evaluation, checkpoints; or let go of the device meanwhile.",
        metric="idle_share",
        score=share,
        share=share,
        evidence={"idle_mj": idle_mj, "idle_ns": idle_ns},
    )


RULE = Rule(("IDLE_ENERGY",), check, __doc__, {"warn": WARN_SHARE, "crit": CRIT_SHARE})
