"""The rules on processes, one a file, in the order that decides between findings of equal severity and score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis import no_gpu
from stepmeter.analysis.process.rules import cpu, gpu_memory, imbalance, normal, overhang, rss

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Rule
    from stepmeter.analysis.section import SectionFacts

RULES: tuple[Rule[SectionFacts], ...] = (
    gpu_memory.RULE,
    overhang.RULE,
    imbalance.RULE,
    rss.RULE,
    cpu.RULE,
    no_gpu.RULE,
)

CONCLUSIONS: tuple[Rule[SectionFacts], ...] = (normal.RULE,)
"""What is left when no rule found anything."""
