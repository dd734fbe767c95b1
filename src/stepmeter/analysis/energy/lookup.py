"""The energy of one step among a million, by its number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stepmeter.analysis.energy.training import analyze_training_energy

if TYPE_CHECKING:
    from stepmeter.analysis.energy.model import Estimate, Estimates
    from stepmeter.store.snapshot import Snapshot


class StepLookup:
    """Energies of all steps of a run.

    Args:
        source: One snapshot of the store.

    Raises:
        CheckFailedError: Steps and the gaps between them do not add up to the counter.
    """

    def __init__(self, source: Snapshot) -> None:
        self._ranks: dict[tuple[int, int], tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], Estimates]] = {}
        for (attempt,) in source.rows("SELECT DISTINCT attempt FROM steps"):
            for one in analyze_training_energy(source, attempt)[1]:
                order = np.argsort(one.steps.step, kind="stable")
                self._ranks[attempt, one.steps.rank] = (one.steps.step, order, one.estimates)

    def of(self, attempt: int, rank: int, step: int) -> Estimate | None:
        """A step's energy.

        Args:
            attempt: Which attempt.
            rank: Global rank.
            step: Number of the step.

        Returns:
            The estimate; None where there is none.
        """
        found = self._ranks.get((attempt, rank))
        if found is None:
            return None
        numbers, order, estimates = found
        at = int(np.searchsorted(numbers, step, sorter=order))
        if at == len(order) or numbers[order[at]] != step:
            return None
        estimate = estimates.one(int(order[at]), None, None)
        return None if estimate.value_mj is None else estimate
