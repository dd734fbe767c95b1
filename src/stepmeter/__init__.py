"""Where did the time go, and where did the energy go? OpenTelemetry-native step telemetry for PyTorch."""

from __future__ import annotations

__version__ = "0.1.0"
