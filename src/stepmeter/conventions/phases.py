"""The phases of a training step, in the order in which they happen."""

from __future__ import annotations

from typing import Final

INPUT_WAIT: Final = "input_wait"
H2D: Final = "h2d"
FORWARD: Final = "forward"
BACKWARD: Final = "backward"
OPTIMIZER: Final = "optimizer"

PHASES: Final = (INPUT_WAIT, H2D, FORWARD, BACKWARD, OPTIMIZER)
"""Every phase, in the order of a step; the index of a phase is its number inside a capture."""

REQUIRED_PHASES: Final = (INPUT_WAIT, FORWARD, BACKWARD)
"""Phases that a rank has only if it measured them on every step."""

OCCASIONAL_PHASES: Final = (H2D, OPTIMIZER)
"""Phases that may happen on some steps only; a step without them did no such work."""
