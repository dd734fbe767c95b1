"""Rows that are no longer in memory: from the lines in the run directory, or from the store through our own command.

Nothing in a training process opens the store, so another process is asked, which takes a second or two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from stepmeter.capture.open_row import merged
from stepmeter.conventions import environment
from stepmeter.conventions.rows import Row
from stepmeter.runtime.row_lines import NON_FINITE, read_rows

_LIMIT_S: Final = 60.0
_RUN_FILE: Final = "run.json"  # which a collector makes


class Wanted(NamedTuple):
    """What is asked for.

    Attributes:
        stream: The stream; None for the default one.
        rank: Rank whose rows; None for all.
        steps: (first, end): steps from `first` on and below `end`; either may be None.
        newest: How many of the newest steps; None for all.
    """

    stream: str | None
    rank: int | None
    steps: tuple[int | None, int | None] = (None, None)
    newest: int | None = None


def older_rows(directory: Path, run_id: str, wanted: Wanted) -> list[Row] | None:
    """Read the rows of a run that were written.

    Args:
        directory: The run directory.
        run_id: The run.
        wanted: Which rows.

    Returns:
        One row a step, in the order of the steps; None where neither lines nor a store of this run are.
    """
    found = read_rows(directory, wanted.stream, wanted.rank)
    stored = _from_store(directory, wanted) if _is_store_of(directory, run_id) else None
    if stored is None and not found:
        return None
    low, high = wanted.steps
    rows = merged([*(stored or ()), *found])
    rows = [row for row in rows if (low is None or row.step >= low) and (high is None or row.step < high)]
    return rows if wanted.newest is None else rows[max(0, len(rows) - wanted.newest) :]


def _is_store_of(directory: Path, run_id: str) -> bool:
    try:
        found = json.loads((directory / _RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("run_id") == run_id


def _from_store(directory: Path, wanted: Wanted) -> list[Row] | None:
    command = [sys.executable, "-m", "stepmeter.cli", "sql", str(directory), "-", "--format", "json"]
    # the command is not part of the run, and must not be instrumented as the program is
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ |= {environment.DISABLED: "1", "OTEL_SDK_DISABLED": "true"}
    if sys.path[:1] != [""]:
        environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    try:
        done = subprocess.run(
            command, input=_query(wanted), env=environ, capture_output=True, text=True, check=True, timeout=_LIMIT_S
        )
        return [Row(row["step"], row["time_ns"], _values(row["logged"])) for row in json.loads(done.stdout)]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError):
        return None


def _query(wanted: Wanted) -> str:
    """The names in it are whole numbers and a stream, whose letters were checked when the run was opened."""
    low, high = wanted.steps
    stream = "IS NULL" if wanted.stream is None else f"= '{wanted.stream}'"
    conditions = [f"stream {stream}", "step IS NOT NULL"]
    conditions += [] if wanted.rank is None else [f"coalesce(rank, 0) = {wanted.rank:d}"]
    conditions += [] if low is None else [f"step >= {low:d}"]
    conditions += [] if high is None else [f"step < {high:d}"]
    limit = "" if wanted.newest is None else f" LIMIT {wanted.newest:d}"
    where = " AND ".join(conditions)
    return (
        f'SELECT step, time_ns, "values" AS logged FROM history WHERE {where} ORDER BY step DESC, time_ns DESC{limit}'  # noqa: S608 - see above
    )


def _values(text: Any) -> dict[str, Any]:
    values = json.loads(text) if isinstance(text, str) else text
    return {name: NON_FINITE.get(value, value) if isinstance(value, str) else value for name, value in values.items()}
