"""Summaries as they are read again: a run is summarized, a file is taken as it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepmeter.errors import StoreError
from stepmeter.report.compare import SECTIONS
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
        if not isinstance(document, dict):
            raise TypeError("no object in it")  # noqa: TRY301 - one message for all that it may be
        version = str(document["schema_version"])
        if version.split(".", maxsplit=1)[0] == SUMMARY_VERSION.split(".")[0]:
            _require_summary(document)
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError(f"{path}: not a final_summary.json ({reason}); give one, or a run") from error
    if version.split(".", maxsplit=1)[0] != SUMMARY_VERSION.split(".")[0]:
        raise StoreError(
            f"{path}: summary version {version}, this stepmeter reads {SUMMARY_VERSION.split('.')[0]}.x; "
            "make it again with `stepmeter summary RUN --json`"
        )
    return document


def _require_summary(document: Json) -> None:
    """Touch what a comparison reads, so that a file of another kind is told from a summary.

    Raises:
        LookupError: A key is missing.
        TypeError: Something is of another type.
    """
    meta, window = document["meta"], document["step_time"]["global"]["window"]
    numbers = (meta["world_size"], window["steps_analyzed"])
    if not all(isinstance(number, int) for number in numbers) or not isinstance(meta["run_id"], str):
        raise TypeError("world size, steps or run id of another type")
    for name in SECTIONS:
        section = document[name]
        for metric in section["metadata"]["section_metric_names"]:
            units, totals = section["units"], section["global"]
            _ = units[metric], totals["median"][metric]["value"], totals["worst"][metric]["value"]
        if not isinstance(section["diagnosis"]["kind"], str):
            raise TypeError(f"finding of {name} of another type")
    _ = window["clock"]
