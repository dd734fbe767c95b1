"""The one way from a run to an analysis: load, align, diagnose, each once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.engine import diagnose
from stepmeter.analysis.step_time import repository
from stepmeter.analysis.step_time.alignment import align

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Diagnosis
    from stepmeter.analysis.step_time.model import Profile, StepTimeWindow
    from stepmeter.analysis.step_time.source import StepTimeRepositorySnapshot
    from stepmeter.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class StepTimeAnalysis:
    """An analyzed window and its diagnosis; what every surface draws.

    Attributes:
        snapshot: What was read.
        window: What it means.
        diagnosis: What is wrong, and what to do.
    """

    snapshot: StepTimeRepositorySnapshot
    window: StepTimeWindow
    diagnosis: Diagnosis


@dataclass(frozen=True, slots=True)
class StepTimeRequest:
    """What to analyze.

    Attributes:
        source: One snapshot of the store.
        profile: Which rows to select.
        window_size: How many steps the window may hold; the profile's own when None.
        previous: The analysis before, reused when nothing new was stored.
    """

    source: Snapshot
    profile: Profile
    window_size: int | None = None
    previous: StepTimeAnalysis | None = None


class StepTimePipeline:
    """Loads, aligns and diagnoses; knows no surface and keeps no state."""

    def run(self, request: StepTimeRequest) -> StepTimeAnalysis:
        """Analyze a run's tail.

        Args:
            request: What to analyze.

        Returns:
            The analysis; the very object in `request.previous` when cursor, ranks, strategy and window size are
            unchanged.

        Raises:
            StoreError: The run can't be read.
        """
        window_size = request.window_size or repository.DEFAULT_WINDOW_STEPS[request.profile]
        previous = request.previous
        reusable = previous is not None and previous.window.window_size == window_size
        snapshot = repository.load(
            request.source, request.profile, window_size, previous.snapshot if previous and reusable else None
        )
        if previous is not None and snapshot is previous.snapshot:
            return previous
        return analyze(snapshot, window_size)


def analyze(snapshot: StepTimeRepositorySnapshot, window_size: int) -> StepTimeAnalysis:
    """Align and diagnose what was read.

    Args:
        snapshot: Source facts.
        window_size: How many steps the window may hold, 1 or more.

    Returns:
        The analysis.
    """
    window = align(snapshot, window_size)
    return StepTimeAnalysis(snapshot, window, diagnose(window))
