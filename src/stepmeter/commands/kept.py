"""What ranks kept because the collector had gone: into the store, before the verdict."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from stepmeter.errors import StepmeterError

_FILES: Final = "otlp/kept.*.binpb"


def take_in(run_dir: Path) -> bool:
    """Read what was kept in a run's directory into the run, and remove what has been taken whole.

    Args:
        run_dir: The run's directory.

    Returns:
        Whether nothing is left that is not in the store.
    """
    files = sorted(run_dir.glob(_FILES))
    if not files:
        return True
    from stepmeter.collector.ingest import ingest

    try:
        problems = ingest(files, run_dir.parent, None, "traces").problems
    except (StepmeterError, OSError) as error:
        problems = [str(error)]
    if problems:
        print(f"stepmeter: {run_dir}/{_FILES} stays, for `stepmeter ingest`: {problems[0]}", file=sys.stderr)
        return False
    for file in files:
        file.unlink()
    return True
