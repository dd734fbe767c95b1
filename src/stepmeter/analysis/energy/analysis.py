"""The section on energy: facts, then rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepmeter.analysis.energy.rules import RULES, normal
from stepmeter.analysis.energy.training import analyze_training_energy
from stepmeter.analysis.section import judge

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Diagnosis
    from stepmeter.analysis.energy.model import TrainingEnergy
    from stepmeter.store.snapshot import Snapshot

SUMMARY_STEPS = 20_000
"""Latest steps of each rank that the section of a summary is about, so that a long run's comes as quickly."""


@dataclass(frozen=True, slots=True)
class EnergyAnalysis:
    """What steps cost, and what was found in that."""

    facts: TrainingEnergy
    diagnosis: Diagnosis


def analyze_energy(source: Snapshot, attempt: int | None, last_steps: int = SUMMARY_STEPS) -> EnergyAnalysis:
    """Judge the energy of an attempt's steps.

    Args:
        source: One snapshot of the store.
        attempt: Which attempt; None when there are no steps.
        last_steps: How many steps of each rank at most, the latest.

    Returns:
        The section; without readings it says so.

    Raises:
        StoreError: The run can't be read.
        CheckFailedError: Steps and the gaps between them do not add up to the counter.
    """
    facts, _ = analyze_training_energy(source, attempt, last_steps)
    return EnergyAnalysis(facts, judge(facts, RULES, normal.issue))
