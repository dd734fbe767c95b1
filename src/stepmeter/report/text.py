"""The verdict as text: first what and how bad, then why with numbers, what to try, and the tables behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from stepmeter.analysis.diagnosis.model import Issue
from stepmeter.report.alerts import alert_lines
from stepmeter.report.parts import (
    SEVERITY_STYLES,
    SEVERITY_WORDS,
    empty_table,
    evidence_table,
    finding_line,
    head,
    labelled,
    metric_words,
    render_text,
)
from stepmeter.units import format_quantity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from stepmeter.analysis.run import RunAnalysis
    from stepmeter.analysis.section import SectionAnalysis, SectionFacts
    from stepmeter.analysis.step_time.model import StepTimeWindow
    from stepmeter.analysis.step_time.pipeline import StepTimeAnalysis


def verdict_text(title: str, analysis: RunAnalysis, *, width: int, color: bool) -> str:
    """Write the verdict of a run.

    Args:
        title: The run as a person knows it.
        analysis: All sections of its analysis.
        width: Columns.
        color: Write for a terminal; otherwise plain ASCII without any escape.

    Returns:
        The text, ending in a newline.
    """
    window, issues = analysis.step_time.window, analysis.step_time.diagnosis.issues
    sections = [
        ("step time", analysis.step_time.diagnosis),
        *((item.facts.name.replace("_", " "), item.diagnosis) for item in analysis.readings),
    ]
    parts: list[RenderableType] = [*_lead(analysis), Text(), Text(run_line(title, analysis.step_time)), Text()]
    parts.append(_sections([(name, diagnosis.primary) for name, diagnosis in sections], color=color))
    parts += alert_lines(analysis.alerts, color=color)
    if window.metrics:
        parts += [Text(), evidence_table(window, width=width, color=color), *_energy(analysis.energy.facts)]
    further = issues if analysis.primary.section == "system" else issues[1:]
    health = [issue for _, diagnosis in sections[1:] for issue in diagnosis.issues if issue.severity != "info"]
    for issue in (*further, *health):
        parts += [Text(), finding_line(issue), labelled("why", issue.summary), labelled("next", issue.action)]
    return render_text(parts, width=width, color=color)


def section_card(analysis: SectionAnalysis, width: int) -> str:
    """Write a section of readings alone, in plain ASCII.

    Args:
        analysis: The section's facts and findings.
        width: Columns.

    Returns:
        The text, ending in a newline.
    """
    parts = head(analysis.diagnosis.issues)
    if analysis.facts.rows:
        parts += [Text(), _readings(analysis.facts)]
    return render_text(parts, width=width, color=False)


def step_time_card(analysis: StepTimeAnalysis, width: int) -> str:
    """Write the section on step time alone, in plain ASCII.

    Args:
        analysis: The step-time analysis.
        width: Columns.

    Returns:
        The text, ending in a newline.
    """
    parts = head(analysis.diagnosis.issues)
    if analysis.window.metrics:
        parts += [Text(), evidence_table(analysis.window, width=width, color=False)]
    return render_text(parts, width=width, color=False)


def issue_card(issue: Issue, width: int) -> str:
    """Write a section that is one finding, in plain ASCII."""
    return render_text(head((issue,)), width=width, color=False)


def run_line(title: str, analysis: StepTimeAnalysis) -> str:
    """Say which steps of which run a verdict rests on, and what was left out.

    Args:
        title: The run as a person knows it.
        analysis: The step-time analysis.

    Returns:
        One line.
    """
    window, coverage = analysis.window, analysis.window.coverage
    attempts = [f"latest of {analysis.snapshot.attempts} attempts"] if analysis.snapshot.attempts > 1 else []
    ranks = f"{coverage.ranks_present} of {coverage.world_size} ranks" if coverage.world_size > 1 else "1 rank"
    if not window.steps:
        return f"run {title}: {coverage.recorded_steps} steps recorded, none analyzed"
    left_out = [
        f"{count} {words} left out"
        for count, words in (
            (coverage.warmup_left_out, "in warm-up"),
            (coverage.gpu_pairs_lost, "without device time"),
            (_steps_not_on_all_ranks(window), "not on all ranks"),
        )
        if count > 0
    ]
    details = ", ".join([f"{len(window.steps)} steps", ranks, f"{window.clock.upper()} clock", *attempts, *left_out])
    return f"run {title}: steps {window.steps[0]} to {window.steps[-1]} ({details})"


def energy_line(facts: SectionFacts) -> str | None:
    """Write the energy per step with its bound, of the median rank, and what CPUs took meanwhile.

    Args:
        facts: The section on energy.

    Returns:
        The line; None where no step has an energy.
    """
    of_cpus = facts.representative("step_cpu_energy_mj")
    cpus = "" if of_cpus is None else f"{format_quantity(of_cpus[1], 'mJ')} of CPUs and memory"
    found = facts.representative("step_energy_mj")
    if found is None:
        return f"energy per step {cpus}" if cpus else None
    rank, energy_mj = found
    bound_mj = facts.rows[rank].metrics.get("step_energy_bound_mj")
    bound = f" \u00b1{format_quantity(bound_mj, 'mJ')}" if bound_mj is not None else ""
    where = f" (rank {rank})" if len(facts.rows) > 1 else ""
    beside = f", and {cpus}" if cpus else ""
    return f"energy per step {format_quantity(energy_mj, 'mJ')}{bound}{where}{beside}"


def _energy(facts: SectionFacts) -> list[RenderableType]:
    line = energy_line(facts)
    return [] if line is None else [Text(), Text(line)]


def _lead(analysis: RunAnalysis) -> list[RenderableType]:
    """The finding that sums the run up, where it is not the first one about step time."""
    primary = analysis.primary
    if primary.section != "system":
        return head(analysis.step_time.diagnosis.issues)
    return head([Issue(primary.kind, primary.status, primary.severity, primary.summary, primary.action)])


def _readings(facts: SectionFacts) -> Table:
    """The metrics that anybody measured, over ranks or nodes."""
    rows = empty_table(("reading", "median", "worst", "where"), color=False)
    place = "node" if facts.index_by == "node_rank" else "rank"
    for metric in facts.metrics:
        median, worst = facts.representative(metric.name), facts.worst(metric.name)
        if median is not None and worst is not None:
            values = (format_quantity(value, metric.unit) for _, value in (median, worst))
            rows.add_row(metric_words(metric.name), *values, f"{place} {worst[0]}" if len(facts.rows) > 1 else "")
    return rows


def _steps_not_on_all_ranks(window: StepTimeWindow) -> int:
    coverage = window.coverage
    return coverage.expected_steps - coverage.steps_used - coverage.gpu_pairs_lost


def _sections(sections: Sequence[tuple[str, Issue]], *, color: bool) -> Table:
    rows = empty_table(("section", "finding", "severity"), color=color, right=False)
    for name, issue in sections:
        style = SEVERITY_STYLES[issue.severity]
        rows.add_row(name, Text(issue.status, style=style), Text(SEVERITY_WORDS[issue.severity], style=style))
    return rows
