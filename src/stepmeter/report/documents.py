"""Summaries as they are read again: a run is summarized, a file is taken as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepmeter.errors import StoreError
from stepmeter.report.summary import SUMMARY_VERSION, summarize
from stepmeter.store.reader import find_run

Json = dict[str, Any]


def read_summary(reference: str) -> Json:
    """Read the summary of a run or of a file.

    Args:
        reference: A run directory, its `run.duckdb`, a run's name or id, or a `final_summary.json`.

    Returns:
        The document.

    Raises:
        RunNotFoundError: There is neither such a file nor such a run.
        StoreError: It can't be read, or is of a newer major version.
    """
    path = Path(reference)
    if path.suffix == ".json" and path.is_file() and path.name != "run.json":
        return _read_file(path)
    return summarize(find_run(reference)).document


def _read_file(path: Path) -> Json:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = str(document["schema_version"])
        missing = [name for name in ("meta", "step_time", "step_memory", "system", "process") if name not in document]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not a final_summary.json ({error}); give one, or a run") from error
    if missing:
        raise StoreError(f"{path}: not a final_summary.json (no {missing[0]}); give one, or a run")
    if version.split(".", maxsplit=1)[0] != SUMMARY_VERSION.split(".")[0]:
        raise StoreError(
            f"{path}: summary version {version}, this stepmeter reads {SUMMARY_VERSION.split('.')[0]}.x; "
            "make it again with `stepmeter summary RUN --json`"
        )
    return document  # type: ignore[no-any-return]  # JSON
