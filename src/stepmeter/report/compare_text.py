"""A comparison as text and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.text import Text

from stepmeter.report.compare import SECTIONS
from stepmeter.report.parts import empty_table, labelled, metric_words, render_text
from stepmeter.report.sections import finite
from stepmeter.units import format_quantity, format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from stepmeter.report.compare import Change, Comparison, Side
    from stepmeter.report.gate import Outcome

COMPARE_VERSION = "1.0"
"""Moves with the keys of `comparison_json`."""

STYLES = {"IMPROVEMENT": "green", "REGRESSION": "red", "SIMILAR": "default", "NOT COMPARABLE": "yellow"}
SHOWN = 5
"""Changes of a section in the text, the largest first; JSON has all."""

Json = dict[str, Any]


def comparison_text(comparison: Comparison, outcomes: Sequence[Outcome], *, width: int, color: bool) -> str:
    """Write a comparison.

    Args:
        comparison: The comparison.
        outcomes: What became of the conditions.
        width: Columns.
        color: Write for a terminal; otherwise plain ASCII.

    Returns:
        The text, ending in a newline.
    """
    parts: list[RenderableType] = [Text(comparison.verdict, style=f"bold {STYLES[comparison.verdict]}")]
    parts += [labelled("why", sentence) for sentence in comparison.why]
    parts += [Text(), *(Text(_side(letter, side)) for letter, side in _letters(comparison))]
    if comparison.changes:
        parts += [Text(), _table(comparison, color=color)]
    moved = [
        f"{name.replace('_', ' ')}: {comparison.before.findings[name]} to {comparison.after.findings[name]}"
        for name in SECTIONS
        if comparison.before.findings[name] != comparison.after.findings[name]
    ]
    if moved:
        parts += [Text(), labelled("also", "; ".join(moved))]
    parts += [Text(_outcome(outcome)) for outcome in outcomes]
    return render_text(parts, width=width, color=color)


def comparison_json(comparison: Comparison, outcomes: Sequence[Outcome]) -> Json:
    """Project a comparison.

    Args:
        comparison: The comparison.
        outcomes: What became of the conditions.

    Returns:
        The document; a number that is not known is null.
    """
    return {
        "schema_version": COMPARE_VERSION,
        "verdict": comparison.verdict,
        "why": list(comparison.why),
        **{letter.lower(): _side_json(side) for letter, side in _letters(comparison)},
        "sections": {name: _section_json(comparison, name) for name in SECTIONS},
        "fail_on": [
            {
                "condition": item.condition.text,
                "change": finite(item.change),
                "holds": item.holds,
                "reason": item.reason,
            }
            for item in outcomes
        ],
    }


def _letters(comparison: Comparison) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("A", comparison.before), ("B", comparison.after)


def _side(letter: str, side: Side) -> str:
    ranks = f"{side.world_size} ranks" if side.world_size != 1 else "1 rank"
    clock = f", {side.clock.upper()} clock" if side.clock else ""
    return f"{letter}  {side.name} ({side.steps} steps, {ranks}{clock})"


def _table(comparison: Comparison, *, color: bool) -> Table:
    shared = _of_several_sections(comparison)
    rows = empty_table(("phase", "A", "B", "change", "noise"), color=color)
    for section in SECTIONS:
        for change in _largest([item for item in comparison.changes if item.section == section]):
            relative = change.relative
            rows.add_row(
                f"{section} {metric_words(change.metric)}" if change.metric in shared else metric_words(change.metric),
                format_quantity(change.before, change.unit),
                format_quantity(change.after, change.unit),
                "" if relative is None else f"{relative:+.1%}".replace("%", " %"),
                "" if change.margin is None else f"±{format_share(change.margin)}",
            )
    return rows


def _of_several_sections(comparison: Comparison) -> set[str]:
    """Metrics of one name in several sections, as the CPUs' share of the host and that of the processes."""
    sections = Counter(metric for metric, _ in {(item.metric, item.section) for item in comparison.changes})
    return {metric for metric, count in sections.items() if count > 1}


def _largest(changes: list[Change]) -> list[Change]:
    """Those of the most different values, step time before all."""
    shown = [item for item in changes if "_cpu_" not in item.metric and "_gpu_ms" not in item.metric]
    ordered = sorted(
        shown,
        key=lambda item: (item.metric != "step_time_ms", item.is_noise, -abs(item.relative or 0.0)),
    )
    return ordered[:SHOWN]


def _outcome(outcome: Outcome) -> str:
    change = f"{outcome.change:+.1%}".replace("%", " %" if outcome.condition.unit == "%" else " pp")
    state = "FAILED" if outcome.holds else "passed"
    reason = f", {outcome.reason}" if outcome.reason else ""
    return f"{state}  {outcome.condition.text} ({change}{reason})"


def _side_json(side: Side) -> Json:
    return {"run": side.name, "world_size": side.world_size, "clock": side.clock, "steps_analyzed": side.steps}


def _section_json(comparison: Comparison, section: str) -> Json:
    return {
        "diagnosis": {letter.lower(): side.findings[section] for letter, side in _letters(comparison)},
        "metrics": {
            change.metric: {
                "a": finite(change.before),
                "b": finite(change.after),
                "unit": change.unit,
                "relative": finite(change.relative),
                "margin": finite(change.margin),
                "is_noise": change.is_noise,
            }
            for change in comparison.changes
            if change.section == section
        },
    }
