"""The verdict as text: first what and how bad, then why with numbers, what to try, and the tables behind it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from stepmeter.analysis.diagnosis.model import Issue, Severity
    from stepmeter.analysis.step_time.model import StepTimeMetric, StepTimeWindow
    from stepmeter.analysis.step_time.pipeline import StepTimeAnalysis

PHASE_ROWS = (
    ("input wait", "input_wait_ms"),
    ("h2d", "h2d_ms"),
    ("forward", "forward_ms"),
    ("backward", "backward_ms"),
    ("optimizer", "optimizer_ms"),
    ("residual", "residual_ms"),
    ("step", "step_time_ms"),
)

NARROW = 70
"""Below so many columns a table of six does not fit."""

SEVERITY_WORDS: dict[Severity, str] = {"info": "info", "warn": "warning", "crit": "critical"}
SEVERITY_STYLES: dict[Severity, str] = {"info": "green", "warn": "yellow", "crit": "red"}

_TO_ASCII = str.maketrans({"µ": "u", "…": "...", "–": "-", "·": "-", "×": "x"})  # noqa: RUF001  what units write


def verdict_text(
    title: str, analysis: StepTimeAnalysis, others: Sequence[tuple[str, Issue]], *, width: int, color: bool
) -> str:
    """Write the verdict of a run.

    Args:
        title: The run as a person knows it.
        analysis: The step-time analysis.
        others: The other sections' names and findings.
        width: Columns.
        color: Write for a terminal; otherwise plain ASCII without any escape.

    Returns:
        The text, ending in a newline.
    """
    window, issues = analysis.window, analysis.diagnosis.issues
    parts: list[RenderableType] = [*_head(issues), Text(), Text(_run_line(title, analysis)), Text()]
    parts.append(_sections([("step time", issues[0]), *others], color=color))
    if window.metrics:
        parts += [Text(), evidence_table(window, width=width, color=color)]
    for issue in issues[1:]:
        parts += [Text(), _finding_line(issue), _labelled("why", issue.summary), _labelled("next", issue.action)]
    return _render(parts, width=width, color=color)


def step_time_card(analysis: StepTimeAnalysis, width: int) -> str:
    """Write the section on step time alone, in plain ASCII.

    Args:
        analysis: The step-time analysis.
        width: Columns.

    Returns:
        The text, ending in a newline.
    """
    parts = _head(analysis.diagnosis.issues)
    if analysis.window.metrics:
        parts += [Text(), evidence_table(analysis.window, width=width, color=False)]
    return _render(parts, width=width, color=False)


def issue_card(issue: Issue, width: int) -> str:
    """Write a section that is one finding, in plain ASCII."""
    return _render(_head((issue,)), width=width, color=False)


def evidence_table(window: StepTimeWindow, *, width: int, color: bool) -> Table:
    """The phases of a step; those that nobody measured are absent rather than 0.

    Args:
        window: The analyzed window.
        width: Columns of the screen; a narrow one gets the first half of the table.
        color: Whether it is for a terminal.

    Returns:
        One row for each measured phase: median over ranks, its share, the worst rank's value, skew, and where.
    """
    shown = 3 if width < NARROW else 6
    table = _table(("phase", "share", "median", "worst", "skew", "where")[:shown], color=color)
    for label, name in PHASE_ROWS:
        metric = window.metrics.get(name)
        if metric is not None:
            table.add_row(*_phase_row(window, label, metric)[:shown])
    return table


def _phase_row(window: StepTimeWindow, label: str, metric: StepTimeMetric) -> tuple[str, ...]:
    share = window.shares.get(metric.name)
    several = len(metric.ranks) > 1
    return (
        label,
        format_share(None if share is None else share.mean, ""),
        format_ms(metric.median_ms),
        format_ms(metric.worst_ms),
        format_share(metric.skew),
        _where(window, metric.worst_rank) if several else "",
    )


def _where(window: StepTimeWindow, rank: int) -> str:
    identity = window.identities.get(rank)
    return f"rank {rank} on {identity.host}" if identity and identity.host else f"rank {rank}"


def _head(issues: Sequence[Issue]) -> list[RenderableType]:
    """Verdict, why, next; a record with holes is said before anything rests on it."""
    primary = issues[0]
    parts: list[RenderableType] = [_finding_line(primary)]
    holes = [issue for issue in issues[1:] if issue.kind == "INCOMPLETE_RECORD"]
    parts += [_labelled("note", issue.summary) for issue in holes]
    return [*parts, _labelled("why", primary.summary), _labelled("next", primary.action)]


def _finding_line(issue: Issue) -> Text:
    line = Text(issue.status, style=f"bold {SEVERITY_STYLES[issue.severity]}")
    line.append(f"  {SEVERITY_WORDS[issue.severity]}", style=SEVERITY_STYLES[issue.severity])
    if issue.score is not None and issue.metric is not None:
        line.append(f"  {format_share(issue.score)} of step time", style="default")
    return line


def _labelled(label: str, sentence: str) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=4)
    grid.add_column(overflow="fold")
    grid.add_row(label, Text(sentence))
    return grid


def _run_line(title: str, analysis: StepTimeAnalysis) -> str:
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


def _steps_not_on_all_ranks(window: StepTimeWindow) -> int:
    coverage = window.coverage
    return coverage.expected_steps - coverage.steps_used - coverage.gpu_pairs_lost


def _sections(sections: Sequence[tuple[str, Issue]], *, color: bool) -> Table:
    table = _table(("section", "finding", "severity"), color=color, right=False)
    for name, issue in sections:
        style = SEVERITY_STYLES[issue.severity]
        table.add_row(name, Text(issue.status, style=style), Text(SEVERITY_WORDS[issue.severity], style=style))
    return table


def _table(columns: Sequence[str], *, color: bool, right: bool = True) -> Table:
    table = Table(box=box.SIMPLE_HEAD if color else None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        numbers = right and name not in {"phase", "where"}
        table.add_column(name, justify="right" if numbers else "left", no_wrap=True, overflow="crop")
    return table


def _render(parts: Sequence[RenderableType], *, width: int, color: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = "\n".join(line.rstrip() for line in capture.get().splitlines())
    return f"{lines if color else lines.translate(_TO_ASCII).encode('ascii', 'replace').decode()}\n"
