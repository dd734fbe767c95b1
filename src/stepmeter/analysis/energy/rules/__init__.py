"""The rules on energy, one a file, in the order that decides between findings of equal severity and score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.energy.rules import (
    basis_disagreement,
    energy_straggler,
    energy_unresolved,
    idle_energy,
    normal,
    power_throttled,
)

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Rule
    from stepmeter.analysis.energy.model import TrainingEnergy

RULES: tuple[Rule[TrainingEnergy], ...] = (
    idle_energy.RULE,
    energy_straggler.RULE,
    power_throttled.RULE,
    basis_disagreement.RULE,
    energy_unresolved.RULE,
)

CONCLUSIONS: tuple[Rule[TrainingEnergy], ...] = (normal.RULE,)
"""What is left when no rule found anything."""
