"""One run on disk whose content one test after another replaces: opening it costs more than analyzing it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from stepmeter.analysis.run import RunAnalysis, analyze_run
from stepmeter.store import segments
from stepmeter.store.reader import open_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.step_time import RunBuilder

RUN_ID = "0123456789abcdef"


class OneRun:
    """A run that stays open."""

    def __init__(self, directory: Path) -> None:
        self._path = segments.claim_run(directory, RUN_ID, "scenario")
        self._reader = open_run(self._path)
        self._number = 0

    def analyze(self, builder: RunBuilder) -> RunAnalysis:
        """Replace what the run holds, and analyze that."""
        self._number += 1
        for table in ("steps", "metric_points", "resources"):
            shutil.rmtree(self._path / "data" / table / "live", ignore_errors=True)
        shutil.rmtree(self._path / "watermark", ignore_errors=True)
        builder.write_into(self._path, RUN_ID, self._number)
        return analyze_run(self._reader.snapshot())

    def close(self) -> None:
        """Let go of it."""
        self._reader.close()
