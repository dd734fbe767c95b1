"""What steps and calls cost, as attributes of their events in a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.energy.joining import join
from stepmeter.analysis.energy.lookup import StepLookup
from stepmeter.analysis.energy.model import METHODS
from stepmeter.analysis.energy.repository import load_sources
from stepmeter.analysis.energy.spans import genai_steps
from stepmeter.analysis.energy.trajectory import Trajectory
from stepmeter.errors import CheckFailedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepmeter.analysis.energy.model import Estimate
    from stepmeter.store.snapshot import Snapshot

_ANY = "SELECT 1 FROM metrics WHERE metric IN ('hw.energy', 'hw.power') LIMIT 1"


class TraceEnergies:
    """Energies of a run's steps and of calls of models and tools.

    Args:
        source: One snapshot of the store.

    Attributes:
        trouble: Why there are none although devices were read; None when there is nothing to say.
    """

    def __init__(self, source: Snapshot) -> None:
        self.trouble: str | None = None
        self._steps: StepLookup | None = None
        self._spans: dict[str, str] = {}
        if not source.rows(_ANY):
            return
        try:
            self._steps = StepLookup(source)
            self._spans = _calls(source)
        except CheckFailedError as error:
            self.trouble = str(error)

    def of_step(self, attempt: int, rank: int, step: int) -> str:
        """A step's energy.

        Args:
            attempt: Which attempt.
            rank: Global rank.
            step: Number of the step.

        Returns:
            Members of a JSON object; empty where it has none.
        """
        found = self._steps.of(attempt, rank, step) if self._steps is not None else None
        return "" if found is None else _sum([found], "")

    def of_span(self, span_id: str) -> str:
        """A call's energy, of the time that is its own; members of a JSON object, empty where it has none."""
        return self._spans.get(span_id, "")


def _calls(source: Snapshot) -> dict[str, str]:
    steps, _ = genai_steps(source)
    found = join(steps, load_sources(source)) if steps else None
    if found is None:
        return {}
    pieces: dict[str, list[Estimate]] = {}
    of_cpus: dict[str, list[Estimate]] = {}
    for one in found.steps:
        if one.step.span_id is not None:
            if one.estimate is not None and isinstance(found, Trajectory):
                pieces.setdefault(one.step.span_id, []).append(one.estimate)
            if one.host is not None:
                of_cpus.setdefault(one.step.span_id, []).append(one.host)
    parts = {span_id: [_sum(estimates, "")] for span_id, estimates in pieces.items()}
    for span_id, estimates in of_cpus.items():
        parts.setdefault(span_id, []).append(_sum(estimates, "cpu_"))
    return {span_id: ",".join(filter(None, members)) for span_id, members in parts.items()}


def _sum(parts: Sequence[Estimate], prefix: str) -> str:
    worst = max(parts, key=lambda part: METHODS.index(part.method))
    if worst.method == "unavailable":
        return ""
    value_mj, lower_mj, upper_mj = (
        sum(getattr(part, name) or 0 for part in parts) for name in ("value_mj", "lower_mj", "upper_mj")
    )
    return _members(value_mj, lower_mj, upper_mj, worst.method, prefix)


def _members(value_mj: int, lower_mj: int, upper_mj: int, method: str, prefix: str = "") -> str:
    return (
        f'"{prefix}energy_mj":{value_mj},"{prefix}energy_lower_mj":{lower_mj},"{prefix}energy_upper_mj":{upper_mj},'
        f'"{prefix}energy_method":"{method}"'
    )
