"""The one live session: one consumer's refreshes, its last good state, and how fresh that is."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepmeter.analysis.energy.live import LiveEnergy
from stepmeter.analysis.step_time.model import LIVE_WINDOW_STEPS
from stepmeter.analysis.step_time.pipeline import StepTimePipeline, StepTimeRequest, analyze
from stepmeter.analysis.step_time.source import StepTimeRepositorySnapshot
from stepmeter.errors import StepmeterError
from stepmeter.store.reader import open_run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from stepmeter.analysis.section import SectionFacts
    from stepmeter.analysis.step_time.pipeline import StepTimeAnalysis
    from stepmeter.store.listing import Cursor
    from stepmeter.store.reader import RunReader

Freshness = Literal["cold", "live", "bridged", "expired"]

LAST_GOOD_TTL_S = 30.0
"""How long the last good analysis bridges readings that fail or find nothing."""


@dataclass(frozen=True, slots=True)
class LiveStepTimeResult:
    """What a refresh gave.

    Attributes:
        analysis: The current analysis, the last good one, or the empty one; the very object of the refresh before
            when nothing changed.
        freshness: `cold` before the first usable window; `live` when this reading gave one, also an unchanged one;
            `bridged` when it failed or found none and the last good one is shown; `expired` when that is too old.
        error: Why the reading failed, in one line; None when it did not.
        energy: What the window's steps cost, of now or some seconds before; None where that is not known.
    """

    analysis: StepTimeAnalysis
    freshness: Freshness
    error: str | None = None
    energy: SectionFacts | None = None

    @property
    def newest_ns(self) -> int | None:
        """End of the newest step in the analysis, Unix time in ns; whether anybody still trains is told by its age."""
        return self.analysis.snapshot.cursor.last_end_ns or None


class LiveStepTimeSession:
    """Refreshes one run's analysis for one consumer; refreshes from several threads follow one another.

    The run stays open from one refresh to the next, for opening costs more than reading; it holds no lock on any file,
    so that nobody waits for it. After a failure it is opened anew.
    """

    def __init__(
        self,
        run: Path,
        *,
        window_size: int = LIVE_WINDOW_STEPS,
        ttl_s: float | None = LAST_GOOD_TTL_S,
        monotonic_s: Callable[[], float] = time.monotonic,
        pipeline: StepTimePipeline | None = None,
    ) -> None:
        """Make a session; nothing is read yet.

        Args:
            run: The run directory.
            window_size: How many steps the window may hold, 1 or more.
            ttl_s: How long a good analysis may bridge bad readings, in s; None for ever.
            monotonic_s: A clock that no correction of the wall clock moves, in s.
            pipeline: What loads, aligns and diagnoses; one of its own when None.
        """
        self._run = run
        self._window_size = window_size
        self._ttl_s = ttl_s
        self._monotonic_s = monotonic_s
        self._pipeline = pipeline or StepTimePipeline()
        self._empty = analyze(StepTimeRepositorySnapshot(), window_size)
        self._lock = threading.Lock()
        self._reader: RunReader | None = None
        self._cursor: Cursor = ()
        self._good: StepTimeAnalysis | None = None
        self._good_at_s = 0.0
        self._live_energy = LiveEnergy(monotonic_s)
        self._energy: SectionFacts | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the run; a later refresh opens it again."""
        with self._lock:
            self._drop_reader()

    def refresh(self) -> LiveStepTimeResult:
        """Read the run's end and analyze it, unless nothing changed.

        Returns:
            The analysis and how fresh it is. A run that can't be read is no exception here but `error`.
        """
        with self._lock:
            try:
                analysis, cursor = self._read()
            except StepmeterError as failure:
                self._drop_reader()
                return self._without_window(str(failure))
            if not analysis.window.steps:
                return self._without_window(None)
            self._good, self._good_at_s, self._cursor = analysis, self._monotonic_s(), cursor
            return LiveStepTimeResult(analysis, "live", energy=self._energy)

    def _read(self) -> tuple[StepTimeAnalysis, Cursor]:
        if self._reader is None:
            self._reader = open_run(self._run)
        snapshot = self._reader.snapshot()
        if self._good is not None and snapshot.cursor == self._cursor:
            return self._good, self._cursor
        request = StepTimeRequest(snapshot, "live", self._window_size, previous=self._good)
        analysis = self._pipeline.run(request)
        self._energy = self._live_energy.read(snapshot, analysis.snapshot.cursor.attempt, analysis.window.steps)
        return analysis, snapshot.cursor

    def _without_window(self, error: str | None) -> LiveStepTimeResult:
        if self._good is None:
            return LiveStepTimeResult(self._empty, "cold", error)
        if self._ttl_s is not None and self._monotonic_s() - self._good_at_s > self._ttl_s:
            return LiveStepTimeResult(self._empty, "expired", error)
        return LiveStepTimeResult(self._good, "bridged", error, self._energy)

    def _drop_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
