"""How many phase spans may be made a second; spent by whole steps, so that a step shows all of its regions or none."""

from __future__ import annotations

from collections.abc import Mapping

from stepmeter.conventions import environment

DEFAULT_PHASE_SPANS_PER_SECOND = 50.0


class PhaseBudget:
    """A bucket that refills with time and holds at most one second's worth.

    Args:
        spans_per_second: The rate; 0 = none at all.
    """

    def __init__(self, spans_per_second: float) -> None:
        self._rate = spans_per_second
        self._tokens = spans_per_second
        self._last_ns: int | None = None

    def take(self, spans: int, at_ns: int) -> bool:
        """Ask for a step's phase spans.

        A step with more regions than a second's budget still gets its turn: it takes the bucket below zero.

        Args:
            spans: How many regions the step has.
            at_ns: When the step ended, monotonic.

        Returns:
            Whether its phase spans may be made.
        """
        if self._rate <= 0:
            return False
        if self._last_ns is not None:
            self._tokens = min(self._rate, self._tokens + self._rate * (at_ns - self._last_ns) / 1e9)
        self._last_ns = at_ns
        if self._tokens < min(spans, self._rate):
            return False
        self._tokens -= spans
        return True


def budget_from_environ(environ: Mapping[str, str]) -> PhaseBudget:
    """The budget that the user set.

    Args:
        environ: The environment, for STEPMETER_PHASE_SPANS_PER_SECOND.

    Returns:
        The budget; the default where the variable is unset or no number.
    """
    try:
        return PhaseBudget(float(environ[environment.PHASE_SPANS_PER_SECOND]))
    except (KeyError, ValueError):
        return PhaseBudget(DEFAULT_PHASE_SPANS_PER_SECOND)
