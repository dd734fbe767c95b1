"""What a diagnosis is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

Severity = Literal["info", "warn", "crit"]
Evidence = Mapping[str, object]

SEVERITIES: tuple[Severity, ...] = ("info", "warn", "crit")
"""In ascending order."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One finding.

    Attributes:
        kind: Stable name, for programs.
        status: The same for people.
        severity: How much it matters.
        summary: Why, with numbers.
        action: The first thing to try.
        metric: Metric that shows it, with its unit; None when none does.
        phase: Phase that shows it; None when none does.
        score: What it costs as a share of step time, 0 to 1; None for findings without one.
        share: Share of the metric in step time, 0 to 1.
        skew: (worst - median) / median of the metric over ranks.
        ranks: The ranks it is about; empty when it is about all.
        evidence: Further numbers by name, units in the names.
    """

    kind: str
    status: str
    severity: Severity
    summary: str
    action: str
    metric: str | None = None
    phase: str | None = None
    score: float | None = None
    share: float | None = None
    skew: float | None = None
    ranks: tuple[int, ...] = ()
    evidence: Evidence = field(default_factory=dict)

    @property
    def is_straggler(self) -> bool:
        """Whether it blames one rank for others' waiting."""
        return self.kind.endswith("STRAGGLER")


@dataclass(frozen=True, slots=True)
class Abstention:
    """A rule could not judge.

    Attributes:
        signals: What it would have needed.
    """

    signals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings about one window.

    Attributes:
        issues: Never empty; severity, then score, then stragglers first, then rule order.
    """

    issues: tuple[Issue, ...]

    @property
    def primary(self) -> Issue:
        """The first finding."""
        return self.issues[0]


Outcome = Issue | Abstention | None
Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Rule(Generic[Facts]):
    """One rule; its file's docstring is its documentation.

    Attributes:
        kinds: The kinds it can give.
        check: Judges facts: a finding, an abstention, or None when there is nothing to say.
        explanation: What the finding means and when it is given.
        thresholds: The numbers it goes by.
    """

    kinds: tuple[str, ...]
    check: Callable[[Facts], Outcome]
    explanation: str | None
    thresholds: Mapping[str, float] = field(default_factory=dict)
