"""Alerts of a run, a line a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from stepmeter.report.parts import SEVERITY_STYLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from stepmeter.analysis.alerts import AlertedRule
    from stepmeter.analysis.diagnosis.model import Severity

SHOWN: Final = 10
_ALL: Final = 'stepmeter sql RUN "SELECT * FROM alerts"'
_SEVERITIES: Final[dict[str, Severity]] = {"critical": "crit", "error": "crit", "warning": "warn"}


def alert_lines(alerts: Sequence[AlertedRule], *, color: bool) -> list[RenderableType]:
    """Draw the alerts that fired.

    Args:
        alerts: Rules that fired, the gravest first.
        color: Whether it is for a terminal.

    Returns:
        What to print, an empty line first; nothing without alerts.
    """
    if not alerts:
        return []
    grid = Table.grid(padding=(0, 2))
    for last in (False, False, True):
        grid.add_column(no_wrap=not last, overflow="fold")
    for rule in alerts[:SHOWN]:
        style = SEVERITY_STYLES[severity_of(rule.level)] if color else ""
        grid.add_row(Text(f"alert {rule.level}", style=style), rule.where, Text(rule.message))
    rest = len(alerts) - SHOWN
    more = [Text(f"and {rest} more: {_ALL}")] if rest > 0 else []
    return [Text(), grid, *more]


def severity_of(level: str) -> Severity:
    """How much a level of an alert matters among findings."""
    return _SEVERITIES.get(level, "info")
