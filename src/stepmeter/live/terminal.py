"""A training run as it goes, in a terminal; draws what one live session gives and decides nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stepmeter.analysis.step_time.live import LiveStepTimeSession
from stepmeter.live.sparkline import bar, sparkline
from stepmeter.report.parts import NARROW, empty_table, evidence_table, finding_line, head, labelled
from stepmeter.report.text import energy_line, run_line
from stepmeter.units import format_duration, format_ms, format_share

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console, RenderableType

    from stepmeter.analysis.step_time.live import Freshness, LiveStepTimeResult
    from stepmeter.analysis.step_time.model import StepTimeMetric, StepTimeWindow

REFRESH_INTERVAL_S = 1.0
WIDE = 120
"""From so many columns on, phases and ranks stand side by side."""

RANKS_SHOWN = 16
BAR_COLUMNS = 12
FULL_BAR_SHARE = 0.1
"""A bar is full at the largest distance from the median, but not below this share of it: noise draws no long bars."""

FRESHNESS_STYLES: dict[Freshness, str] = {"cold": "dim", "live": "green", "bridged": "yellow", "expired": "red"}
FRESHNESS_WORDS: dict[Freshness, str] = {
    "cold": "waiting for the first steps",
    "live": "live",
    "bridged": "bridged: no new reading, the last good one is shown",
    "expired": "expired: no reading for too long",
}


def watch(
    run: Path,
    stop: threading.Event,
    console: Console,
    *,
    title: str | None = None,
    interval_s: float = REFRESH_INTERVAL_S,
    wall_ns: Callable[[], int] = time.time_ns,
) -> None:
    """Show a run until told to stop; the last picture stays on the screen.

    Args:
        run: The run directory.
        stop: Set from anywhere to end it; it ends within one drawing.
        console: Where to draw, a terminal.
        title: The run as a person knows it; its directory's name when None.
        interval_s: Time between refreshes, in s.
        wall_ns: The wall clock, Unix time in ns.
    """
    with LiveStepTimeSession(run) as session, Live(console=console, auto_refresh=False) as screen:
        while True:
            result = session.refresh()
            picture = draw(result, title or run.name, wall_ns(), console.width, unicode=can_draw(console))
            screen.update(picture, refresh=True)
            if stop.wait(interval_s):
                return


def draw(result: LiveStepTimeResult, title: str, now_ns: int, width: int, *, unicode: bool = True) -> RenderableType:
    """Draw one refresh.

    Args:
        result: What the refresh gave.
        title: The run as a person knows it.
        now_ns: The wall clock, Unix time in ns.
        width: Columns of the screen; below 70 the tables lose columns, from 120 on they stand side by side.
        unicode: Whether the screen can show blocks; ASCII otherwise.

    Returns:
        The picture.
    """
    window, issues = result.analysis.window, result.analysis.diagnosis.issues
    status = [_status(result, now_ns)]
    if result.error:
        status.append(Text(result.error, style="red"))
    if not window.steps:
        # what is missing may still come: no word on optimizers before the run is over
        held = labelled("next", f"`stepmeter summary {title}` says what the run holds so far.")
        return Group(finding_line(issues[0]), Text(), Text(f"run {title}"), *status, held)
    parts = [*head(issues), *(finding_line(issue) for issue in issues[1:]), Text()]
    parts += [Text(run_line(title, result.analysis)), *status, Text()]
    step_time = window.metrics.get("step_time_ms")
    if step_time is not None:
        parts.append(_trend(step_time, width, unicode=unicode))
    energy = None if result.energy is None else energy_line(result.energy)
    if energy is not None:
        parts.append(Text(energy))
    if step_time is not None or energy is not None:
        parts.append(Text())
    return Group(*parts, *_tables(window, step_time, width, unicode=unicode))


def can_draw(console: Console) -> bool:
    """Whether a console takes block characters."""
    return console.encoding.lower().startswith("utf") and not console.legacy_windows


def _status(result: LiveStepTimeResult, now_ns: int) -> Text:
    line = Text(FRESHNESS_WORDS[result.freshness], style=FRESHNESS_STYLES[result.freshness])
    if result.newest_ns is not None:
        age_s = max(0.0, (now_ns - result.newest_ns) / 1e9)
        line.append(f"  newest step {format_duration(round(age_s, 1))} ago", style="default")
    return line


def _trend(step_time: StepTimeMetric, width: int, *, unicode: bool) -> Text:
    series = step_time.median_series_ms
    bounds = f"  {format_ms(min(series))} to {format_ms(max(series))}"
    line = Text("step time  ")
    line.append(sparkline(series, min(len(series), width - len("step time  ") - len(bounds)), unicode=unicode), "cyan")
    return line.append(bounds)


def _tables(
    window: StepTimeWindow, step_time: StepTimeMetric | None, width: int, *, unicode: bool
) -> list[RenderableType]:
    phases = evidence_table(window, width=width, color=False)
    if step_time is None or len(step_time.ranks) < 2:
        return [phases]
    ranks = _ranks(window, step_time, width, unicode=unicode)
    if width < WIDE:
        return [phases, Text(), *ranks]
    beside = Table.grid(padding=(0, 6, 0, 0))
    beside.add_row(phases, Group(*ranks))
    return [beside]


def _ranks(window: StepTimeWindow, step_time: StepTimeMetric, width: int, *, unicode: bool) -> list[RenderableType]:
    """The slowest ranks with their distance from the median as a number and a bar."""
    means = {rank: window.facts(rank).average.step_time_ms or 0.0 for rank in step_time.ranks}
    shown = sorted(means, key=lambda rank: (-means[rank], rank))[:RANKS_SHOWN]
    full_bar_ms = max(
        FULL_BAR_SHARE * step_time.median_ms, *(abs(item - step_time.median_ms) for item in means.values())
    )
    rows = empty_table(("rank", "step time", "off median"), color=False)
    if width >= NARROW:
        rows.add_column("")
    for rank in shown:
        off_ms = means[rank] - step_time.median_ms
        cells = [str(rank), format_ms(means[rank]), _off(off_ms / step_time.median_ms if step_time.median_ms else 0.0)]
        if width >= NARROW:
            cells.append(bar(abs(off_ms) / full_bar_ms if full_bar_ms else 0.0, BAR_COLUMNS, unicode=unicode))
        rows.add_row(*cells)
    rest = len(means) - len(shown)
    return [rows, Text(f"and {rest} ranks more")] if rest else [rows]


def _off(share: float) -> str:
    """A signed share; what rounds to nothing has no sign."""
    return "0.0 %" if abs(share) < 0.0005 else ("+" if share > 0 else "") + format_share(share)
