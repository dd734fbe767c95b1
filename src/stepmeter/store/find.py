"""How a run is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from stepmeter.conventions import environment
from stepmeter.errors import RunNotFoundError
from stepmeter.store.identity import RUN_FILE, list_runs, safe_name
from stepmeter.store.segments import CATALOG_FILE

_SHOWN_RUNS: Final = 8
_LINES: Final = "otlp/*.jsonl"
"""What a program writes that had no collector."""


def find_run(reference: str | Path, directory: Path | None = None) -> Path:
    """Find a run.

    Args:
        reference: A run directory, its `run.duckdb`, or a run's name or id.
        directory: Where to look a name or id up; `$STEPMETER_DIR`, else `./stepmeter-runs`, when None.

    Returns:
        The run directory.

    Raises:
        RunNotFoundError: There is no such run; the message says which there are.
    """
    path = Path(reference)
    if path.name in {CATALOG_FILE, RUN_FILE} and path.is_file():
        path = path.parent
    if (path / RUN_FILE).is_file():
        return path
    runs_dir = directory or runs_directory()
    runs = list_runs(runs_dir) if runs_dir.is_dir() else []
    named = {str(reference), safe_name(str(reference))}  # of a name with a blank the directory has a hash
    for run, identity in runs:
        if run.name in named or identity.run_id == str(reference):
            return run
    lines = path if path.is_dir() else runs_dir / path
    if any(lines.glob(_LINES)):
        message = f'no run "{reference}" yet, but telemetry that no store has taken: stepmeter ingest {lines / _LINES}'
        raise RunNotFoundError(message)
    raise RunNotFoundError(_not_found(str(reference), runs_dir, [run.name for run, _ in runs]))


def runs_directory() -> Path:
    """Where runs live when nobody says.

    Returns:
        `$STEPMETER_DIR`, else `./stepmeter-runs`.
    """
    return Path(os.environ.get(environment.DIR) or environment.DEFAULT_DIR)


def _not_found(reference: str, directory: Path, names: list[str]) -> str:
    if not names:
        there = f"{directory} has no runs; start one: stepmeter run -- CMD"
    else:
        rest = f" and {len(names) - _SHOWN_RUNS} more" if len(names) > _SHOWN_RUNS else ""
        there = f"{directory} has {', '.join(names[:_SHOWN_RUNS])}{rest}"
    return f'no run "{reference}"; {there}'
