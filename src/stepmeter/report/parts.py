"""What the surfaces draw with: the head of a verdict, tables, and text without a terminal."""

from __future__ import annotations

import io
import re
import textwrap
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from stepmeter.units import format_ms, format_share

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from stepmeter.analysis.diagnosis.model import Issue, Severity
    from stepmeter.analysis.step_time.model import StepTimeMetric, StepTimeWindow

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

_TIED: Final = "\u00a0"
_BEFORE_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|[A-Za-zµ]{1,3}\b))")  # units have up to three letters

_TO_ASCII = str.maketrans({"µ": "u", "…": "...", "–": "-", "·": "-", "×": "x", "±": "+-"})  # noqa: RUF001  what units write


def head(issues: Sequence[Issue]) -> list[RenderableType]:
    """Draw verdict, why and next; a record with holes is said before anything rests on it.

    Args:
        issues: Findings, the primary one first.

    Returns:
        What to print, one below another.
    """
    primary = issues[0]
    parts: list[RenderableType] = [finding_line(primary)]
    holes = [issue for issue in issues[1:] if issue.kind == "INCOMPLETE_RECORD"]
    parts += [labelled("note", issue.summary) for issue in holes]
    return [*parts, labelled("why", primary.summary), labelled("next", primary.action)]


def finding_line(issue: Issue) -> Text:
    """Draw what was found, how bad it is, and what it costs where it has a cost."""
    line = Text(issue.status, style=f"bold {SEVERITY_STYLES[issue.severity]}")
    line.append(f"  {SEVERITY_WORDS[issue.severity]}", style=SEVERITY_STYLES[issue.severity])
    if issue.score is not None and (issue.metric or "").endswith("_ms"):
        line.append(f"  {format_share(issue.score)} of step time", style="default")
    return line


def labelled(label: str, sentence: str) -> Table:
    """Draw a sentence that wraps beside its label of up to four letters."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", width=4)
    grid.add_column()
    grid.add_row(label, _Sentence(sentence))
    return grid


class _Sentence:
    """A sentence in which no line ends between a number and its unit."""

    def __init__(self, text: str) -> None:
        self._text = _BEFORE_UNIT.sub(_TIED, text)

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        lines = textwrap.wrap(self._text, options.max_width, break_on_hyphens=False)
        yield Text("\n".join(lines).replace(_TIED, " "))

    def __rich_measure__(self, _: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, len(self._text)).with_maximum(options.max_width)


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
    rows = empty_table(("phase", "share", "median", "worst", "skew", "where")[:shown], color=color)
    for label, name in PHASE_ROWS:
        metric = window.metrics.get(name)
        if metric is not None:
            rows.add_row(*_phase_row(window, label, metric)[:shown])
    return rows


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


def metric_words(metric: str) -> str:
    """A metric as people read it: without its unit, which stands with the number, but for shares."""
    name, unit = metric.rsplit("_", 1)
    return name.replace("_", " ") + (" share" if unit == "share" else "")


def empty_table(columns: Sequence[str], *, color: bool, right: bool = True) -> Table:
    """Make a table without rows.

    Args:
        columns: Their headings.
        color: Whether it is for a terminal.
        right: Whether columns are numbers, all but `phase`, `reading` and `where`.

    Returns:
        The table.
    """
    rows = Table(box=box.SIMPLE_HEAD if color else None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in columns:
        numbers = right and name not in {"phase", "reading", "where"}
        rows.add_column(name, justify="right" if numbers else "left", no_wrap=True, overflow="crop")
    return rows


def render_text(parts: Sequence[RenderableType], *, width: int, color: bool) -> str:
    """Write what would be printed.

    Args:
        parts: What to print, one below another.
        width: Columns.
        color: Write for a terminal; otherwise plain ASCII without any escape.

    Returns:
        The text, ending in a newline.
    """
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
