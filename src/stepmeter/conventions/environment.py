"""Environment variables of ours: how one process speaks to those that it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

RUN_ID: Final = "STEPMETER_RUN_ID"
"""Identity of the run; set by `stepmeter run`, inherited by all ranks."""

RUN_NAME: Final = "STEPMETER_RUN_NAME"
"""Name of the run for people; names its directory."""

PROJECT: Final = "STEPMETER_PROJECT"
"""Project that the run belongs to."""

ATTEMPT: Final = "STEPMETER_ATTEMPT"
"""Which start of the run this is, from 0; what torchrun restarts within one start comes on top."""

DIR: Final = "STEPMETER_DIR"
"""Directory of runs; `./stepmeter-runs` when unset."""

RUN_DIR: Final = "STEPMETER_RUN_DIR"
"""The run's own directory; set by `stepmeter run`. What no backend takes is kept there."""

DISABLED: Final = "STEPMETER_DISABLED"
"""Any true value switches everything off."""

STRICT: Final = "STEPMETER_STRICT"
"""Any true value makes the guard raise instead of swallow; for tests."""

MEMORY: Final = "STEPMETER_MEMORY"
"""`0` leaves torch's peak memory counters alone."""

PHASE_SPANS_PER_SECOND: Final = "STEPMETER_PHASE_SPANS_PER_SECOND"
"""Budget of phase spans a rank, spent by whole steps; default 50, 0 = none."""

DEFAULT_DIR: Final = "stepmeter-runs"

_TRUE = frozenset({"1", "true", "yes", "on"})


def is_true(environ: Mapping[str, str], name: str) -> bool:
    """Whether a switch is on.

    Args:
        environ: The environment.
        name: The variable.

    Returns:
        True for `1`, `true`, `yes` and `on` in any case.
    """
    return environ.get(name, "").strip().lower() in _TRUE
