"""The summary of a run: `final_summary.json`, and the verdict as text."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.analysis.run import analyze_run
from stepmeter.errors import StoreError
from stepmeter.report import sections, text
from stepmeter.report.readings import readings_section
from stepmeter.store.reader import open_run

if TYPE_CHECKING:
    from stepmeter.analysis.run import RunAnalysis

SUMMARY_VERSION: Final = "1.4"
"""Moves with the keys and with the meaning of null; the golden file in tests/step_time holds both."""

JSON_FILE: Final = "final_summary.json"
TEXT_FILE: Final = "final_summary.txt"

DEFAULT_WIDTH: Final = 100


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of one run.

    Attributes:
        run: The run directory.
        title: The run as a person knows it.
        analysis: All sections of its analysis.
        document: What `final_summary.json` holds.
    """

    run: Path
    title: str
    analysis: RunAnalysis
    document: dict[str, Any]

    def text(self, width: int = DEFAULT_WIDTH, *, color: bool = False) -> str:
        """Write the verdict.

        Args:
            width: Columns.
            color: Write for a terminal; otherwise plain ASCII.

        Returns:
            The text, ending in a newline.
        """
        return _text(self.title, self.analysis, width, color=color)

    def json(self) -> str:
        """Write the document, ending in a newline."""
        return json.dumps(self.document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def summarize(run: Path, generated_at: datetime | None = None) -> Summary:
    """Analyze a run, which may still be going on.

    Args:
        run: The run directory.
        generated_at: When the summary is made; now when None.

    Returns:
        The summary. A run without steps has one too, whose finding is NO_DATA.

    Raises:
        RunNotFoundError: There is no run at this path.
        StoreError: The run can't be read.
    """
    with open_run(run) as reader:
        analysis = analyze_run(reader.snapshot())
        return build(run, reader.run_id, reader.run_name, analysis, generated_at or datetime.now(timezone.utc))


def build(run: Path, run_id: str, run_name: str | None, analysis: RunAnalysis, generated_at: datetime) -> Summary:
    """Project an analysis; nothing is read or judged here.

    Args:
        run: The run directory.
        run_id: Identity of the run.
        run_name: Its name for people, or None.
        analysis: All sections of its analysis.
        generated_at: When the summary is made.

    Returns:
        The summary.
    """
    step_time = analysis.step_time
    window = step_time.window
    title = run_name or run_id
    document: dict[str, Any] = {
        "schema_version": SUMMARY_VERSION,
        "generated_at": generated_at.isoformat(),
        "duration_s": sections.finite(window.coverage.duration_s),
        "meta": {
            "run_id": run_id,
            "run_name": run_name,
            "mode": sections.run_mode(window),
            "world_size": window.coverage.world_size,
            "nodes_observed": sections.observed_nodes(window),
            "gpus_observed": sections.observed_gpus(window),
        },
        "primary_diagnosis": sections.primary_json(analysis.primary),
    }
    document |= {
        section.facts.name: readings_section(window, section, text.section_card(section, DEFAULT_WIDTH))
        for section in (analysis.system, analysis.process)
    }
    document |= {
        "step_time": sections.step_time_section(
            window, step_time.diagnosis.issues, text.step_time_card(step_time, DEFAULT_WIDTH)
        ),
        "step_memory": readings_section(
            window, analysis.step_memory, text.section_card(analysis.step_memory, DEFAULT_WIDTH)
        ),
        "energy": readings_section(window, analysis.energy, text.section_card(analysis.energy, DEFAULT_WIDTH)),
        "text": _text(title, analysis, DEFAULT_WIDTH, color=False),
    }
    return Summary(run, title, analysis, document)


def write_files(run: Path, generated_at: datetime | None = None) -> Summary:
    """Summarize a run and leave `final_summary.json` and `final_summary.txt` in its directory.

    Args:
        run: The run directory.
        generated_at: When the summary is made; now when None.

    Returns:
        The summary.

    Raises:
        RunNotFoundError: There is no run at this path.
        StoreError: The run can't be read, or its directory can't be written.
    """
    summary = summarize(run, generated_at)
    try:
        _replace(run / JSON_FILE, summary.json())
        _replace(run / TEXT_FILE, summary.text())
    except OSError as error:
        raise StoreError(f"{run}: not writable ({error.strerror}); `stepmeter summary {run}` prints it") from error
    return summary


def _replace(path: Path, content: str) -> None:
    """Readers see the old file or the new one, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _text(title: str, analysis: RunAnalysis, width: int, *, color: bool) -> str:
    return text.verdict_text(title, analysis, width=width, color=color)
