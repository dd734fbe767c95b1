"""Energy of the latest steps for a view that is refreshed again and again; read more rarely than their times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from stepmeter.analysis.energy.section import section_facts
from stepmeter.analysis.energy.training import analyze_training_energy
from stepmeter.errors import StepmeterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.analysis.section import SectionFacts
    from stepmeter.store.snapshot import Snapshot

_ANY = "SELECT 1 FROM metrics WHERE metric IN ('hw.energy', 'hw.power') LIMIT 1"

INTERVAL_S = 5.0
"""Between readings: ticks come ten times a second, and a median over a window of steps moves slowly."""


class LiveEnergy:
    """What the latest steps cost.

    Args:
        monotonic_s: A clock that no correction of the wall clock moves, in s.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._next_s = float("-inf")
        self._facts: SectionFacts | None = None

    def read(self, source: Snapshot, attempt: int | None, steps: tuple[int, ...]) -> SectionFacts | None:
        """Read the energy of a window of steps, unless that was done less than `INTERVAL_S` ago.

        Args:
            source: One snapshot of the store.
            attempt: Which attempt.
            steps: Numbers of the window's steps, ascending; newer ones count as well.

        Returns:
            The facts, of now or a little before; None where no step has an energy, or it can't be read now.
        """
        now_s = self._monotonic_s()
        if steps and now_s >= self._next_s:
            self._next_s = now_s + INTERVAL_S
            self._facts = _facts(source.tail(steps[0]), attempt, steps[0])
        return self._facts


def _facts(source: Snapshot, attempt: int | None, first_step: int) -> SectionFacts | None:
    try:
        if not source.rows(_ANY):
            return None
        energy, _ = analyze_training_energy(source, attempt, first_step=first_step)
    except StepmeterError:  # `stepmeter energy` says what is wrong; the view of times goes on
        return None
    facts = section_facts(energy, {})
    return facts if facts.rows else None
