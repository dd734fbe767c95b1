"""The rules on step memory, one a file, in the order that decides between findings of equal severity and score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis import no_gpu
from stepmeter.analysis.memory.rules import balanced, creep, high_pressure, imbalance

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Rule
    from stepmeter.analysis.memory.facts import StepMemoryFacts

RULES: tuple[Rule[StepMemoryFacts], ...] = (
    high_pressure.RULE,
    imbalance.RULE,
    creep.RULE,
    no_gpu.RULE,  # type: ignore[assignment]  # a rule on any section is one on this; Rule is not declared contravariant
)

CONCLUSIONS: tuple[Rule[StepMemoryFacts], ...] = (balanced.RULE,)
"""What is left when no rule found anything."""
