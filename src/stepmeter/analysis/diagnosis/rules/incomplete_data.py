"""INCOMPLETE_DATA: nothing was found, and at least one rule could not judge because a signal is missing.

*Why*: a phase that was not measured on every step says nothing, and is never taken for zero.
*Next*: find out why the named signals are missing: a module called by other means than its call operator, an update
without a torch optimizer, a loader that is no DataLoader. `stepmeter.wrap_loader` and `stepmeter.trace_step` help.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.signals import SIGNALS, coverage, worst_rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepmeter.analysis.step_time.model import StepTimeWindow


def issue(window: StepTimeWindow, signals: Sequence[str]) -> Issue:
    """Make the finding from what the rules missed.

    Args:
        window: The analyzed window.
        signals: Missing signals, repetitions allowed.

    Returns:
        The finding, with the signals in the order of a step.
    """
    missing = [signal for signal in SIGNALS if signal in signals]
    covered = {signal: f"{coverage(window, signal)}/{len(window.ranks)}" for signal in missing}
    named = ", ".join(f"{signal} ({count} ranks)" for signal, count in covered.items())
    return Issue(
        kind="INCOMPLETE_DATA",
        status="INCOMPLETE DATA",
        severity="info",
        summary=f"Missing signals prevent a reliable diagnosis: {named}.",
        action=(
            "Find out why they were not seen: a module not called by its call operator, a loader that is no "
            "DataLoader (`stepmeter.wrap_loader`), an update without a torch optimizer (`stepmeter.trace_step`)."
        ),
        ranks=worst_rank(window, "step_time_ms") or worst_rank(window, "traced_step_time_ms"),
        evidence={"missing_signals": missing, "signal_coverage": covered},
    )


RULE: Rule[StepTimeWindow] = Rule(("INCOMPLETE_DATA",), lambda _: None, __doc__)
