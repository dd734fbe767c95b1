"""NORMAL, NO_DATA: nothing stands out of the energy, or there is none to judge.

*Why*: NORMAL says that no rule fired; NO_DATA that no device sent energy while steps ran on it.
*Next*: with NO_DATA `stepmeter doctor` says which devices there are and whether their energy can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.units import format_energy, format_share

if TYPE_CHECKING:
    from stepmeter.analysis.energy.model import TrainingEnergy


def issue(facts: TrainingEnergy) -> Issue:
    """Make the finding."""
    if facts.mj_per_step is None and facts.host_mj_per_step is not None:
        return Issue(
            kind="NORMAL",
            status="NORMAL",
            severity="info",
            summary=f"A step takes {format_energy(facts.host_mj_per_step)} of CPUs and memory; {facts.reason}.",
            action="Nothing stands out.",
            metric="host_mj_per_step",
        )
    if facts.mj_per_step is None:
        return Issue(
            kind="NO_DATA",
            status="NO DATA",
            severity="info",
            summary=f"No energy per step: {facts.reason or 'readings cover no step'}.",
            action="Nothing on CPUs; else see with `stepmeter doctor` whether the device's energy can be read.",
        )
    return Issue(
        kind="NORMAL",
        status="NORMAL",
        severity="info",
        summary=(
            f"A step takes {format_energy(facts.mj_per_step)}; {format_share(facts.idle_share)} of the energy was in "
            "nobody's step."
        ),
        action="Nothing stands out.",
        metric="mj_per_step",
    )


RULE: Rule[TrainingEnergy] = Rule(("NORMAL", "NO_DATA"), lambda _: None, __doc__)
