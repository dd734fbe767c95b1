"""Alerts that fired during a run, whoever looked at the rows: its processes or the collector."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stepmeter.analysis.queries import query

if TYPE_CHECKING:
    from stepmeter.store.snapshot import Snapshot


class AlertedRule(NamedTuple):
    """One row of `sql/alerts_by_rule.sql`: a rule that fired."""

    level: str
    message: str
    times: int
    first_step: int | None
    last_step: int | None

    @property
    def where(self) -> str:
        """The steps at which it fired, as a person reads them; empty where none is known."""
        if self.first_step is None or self.last_step is None:
            return "" if self.times == 1 else f"{self.times} times"
        if self.times == 1:
            return f"step {self.first_step}"
        return f"steps {self.first_step} to {self.last_step}, {self.times} times"


def load(source: Snapshot) -> tuple[AlertedRule, ...]:
    """Read which rules fired.

    Args:
        source: One snapshot of the store.

    Returns:
        The rules, the gravest first.
    """
    return tuple(AlertedRule(*row) for row in source.rows(query("alerts_by_rule")))
