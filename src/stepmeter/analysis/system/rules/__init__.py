"""The rules on hosts and GPUs, one a file, in the order that decides between findings of equal severity and score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis import no_gpu
from stepmeter.analysis.system.rules import (
    cpu,
    gpu_memory,
    gpu_power,
    gpu_temperature,
    gpu_utilization,
    host_memory,
    normal,
)

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Rule
    from stepmeter.analysis.section import SectionFacts

RULES: tuple[Rule[SectionFacts], ...] = (
    gpu_memory.RULE,
    gpu_temperature.RULE,
    gpu_power.RULE,
    host_memory.RULE,
    cpu.RULE,
    gpu_utilization.RULE,
    no_gpu.RULE,
)

CONCLUSIONS: tuple[Rule[SectionFacts], ...] = (normal.RULE,)
"""What is left when no rule found anything."""
