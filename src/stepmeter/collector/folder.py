"""The thread that folds a collector's segments, beside the one that writes them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from stepmeter.store.compaction import compact

if TYPE_CHECKING:
    from pathlib import Path

    from stepmeter.collector.health import Health

_INTERVAL_S: Final = 5.0


class Folder:
    """Folds every few seconds what can't be written again any more.

    Args:
        collector: The collector's id.
        health: Counters.
    """

    def __init__(self, collector: str, health: Health) -> None:
        self._collector = collector
        self._health = health
        self._below: dict[Path, int] = {}
        self._covered_since_s: dict[Path, dict[str, float]] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="stepmeter-fold", daemon=True)
        self._thread.start()

    def written(self, runs: list[Path], number: int) -> None:
        """Take note of segments that are final: their journal is gone.

        Args:
            runs: Runs that they may belong to.
            number: Their number.
        """
        self._below = dict.fromkeys(runs, number + 1)

    def close(self) -> None:
        """End; a fold that is under way ends first."""
        self._end.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._end.wait(_INTERVAL_S):
            below = self._below
            for run in self._covered_since_s.keys() - below.keys():
                del self._covered_since_s[run]
            for run, number in below.items():
                self._fold(run, number)

    def _fold(self, run: Path, below: int) -> None:
        try:
            since_s = self._covered_since_s.setdefault(run, {})
            written = compact(run, self._collector, below, covered_since_s=since_s)
        except Exception as error:  # segments that can't be folded can still be read, and are tried again
            self._health.warn("fold_failures", f"can't fold segments of {run}: {' '.join(str(error).split())}")
            return
        if written:
            self._health.count("segments_folded", written)
