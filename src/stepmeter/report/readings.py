"""The sections on system, process and step memory, in the outer shape of all sections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.section import SectionRow
from stepmeter.report.sections import Json, findings, finite, metadata, no_statistics, no_window

if TYPE_CHECKING:
    from stepmeter.analysis.section import SectionAnalysis, SectionFacts
    from stepmeter.analysis.step_time.model import StepTimeWindow


def readings_section(window: StepTimeWindow, analysis: SectionAnalysis, card: str) -> Json:
    """Project a section of readings.

    Args:
        window: The window of step time, for what it knows about the run.
        analysis: The section's facts and findings.
        card: The section as text.

    Returns:
        The section; every metric is there, null where nobody measured it.
    """
    facts = analysis.facts
    names = [metric.name for metric in facts.metrics]
    return {
        "metadata": _metadata(window, facts, names),
        **findings(analysis.diagnosis.issues),
        "global": {
            "index_by": facts.index_by,
            "window": _window(facts),
            "average": {name: finite(facts.average(name)) for name in names},
            "median": {name: _indexed(facts.representative(name)) for name in names},
            "worst": {name: _indexed(facts.worst(name)) for name in names},
            **no_statistics(names),
            "interval": {name: _interval(facts.interval(name)) for name in names},
        },
        "groups": {"by": facts.index_by, "rows": _rows(window, facts, names)},
        "units": {metric.name: metric.unit for metric in facts.metrics},
        "card": card,
    }


def _metadata(window: StepTimeWindow, facts: SectionFacts, names: list[str]) -> Json:
    known = metadata(window, names)
    by_rank = facts.index_by == "global_rank"
    return known | {
        "mode": known["mode"] if facts.rows else "no_data",
        "duration_s": finite(facts.duration_s),
        "samples": facts.samples,
        "global_ranks_used": list(facts.rows) if by_rank else [],
    }


def _window(facts: SectionFacts) -> Json:
    if facts.steps is None:
        return no_window() | {"kind": "readings" if facts.rows else None}
    first, last = facts.steps
    return no_window() | {
        "kind": "tail",
        "alignment": "common_steps",
        "steps_analyzed": facts.n_steps,
        "start_step": first,
        "end_step": last,
        "completed_step": last,
    }


def _interval(found: tuple[float, float] | None) -> Json:
    low, high = found or (None, None)
    return {"low": finite(low), "high": finite(high)}


def _indexed(found: tuple[int, float] | None) -> Json:
    return {"value": found and finite(found[1]), "idx": found and found[0]}


def _rows(window: StepTimeWindow, facts: SectionFacts, names: list[str]) -> Json:
    promised = window.expected_ranks if facts.index_by == "global_rank" else ()
    return {
        str(index): _row(window, facts, index, facts.rows.get(index, SectionRow({})), names)
        for index in sorted({*promised, *facts.rows})
    }


def _row(window: StepTimeWindow, facts: SectionFacts, index: int, row: SectionRow, names: list[str]) -> Json:
    by_rank = facts.index_by == "global_rank"
    identity = window.identities.get(index) if by_rank else None
    return {
        "identity": {
            "global_rank": index if by_rank else None,
            "local_rank": identity and identity.local_rank,
            "node_rank": (identity and identity.node_rank) if by_rank else index,
            "hostname": row.host or (identity and identity.host),
            "world_size": identity and identity.world_size,
            "hw_id": identity and identity.hw_id,
        },
        "metrics": {name: finite(row.metrics.get(name)) for name in names},
    }
