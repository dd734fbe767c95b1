"""What can be measured on spans beside time."""

from __future__ import annotations

from stepmeter.plugins.cpu import CpuTime
from stepmeter.plugins.gpu_energy import GpuEnergy
from stepmeter.plugins.gpu_stats import GpuStats
from stepmeter.plugins.torch_memory import TorchMemory

__all__ = ["CpuTime", "GpuEnergy", "GpuStats", "TorchMemory"]
