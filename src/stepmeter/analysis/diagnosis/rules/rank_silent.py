"""RANK_SILENT: a rank stopped sending while others went on.

*Fires* when a rank is more than one live window (100 steps) behind and its last step ended 30 s and 20 usual
steps or more before the latest step of another rank. The window is then that of the others; the silent rank does
not hide them.
*Why*: the process died, hangs, or can't reach the collector.
*Next*: look at that rank's own output and at its host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.model import Issue, Rule
from stepmeter.analysis.diagnosis.policy import cap
from stepmeter.analysis.step_time.model import LIVE_WINDOW_STEPS
from stepmeter.analysis.step_time.silence import SILENT_AFTER_S, SILENT_AFTER_STEPS
from stepmeter.units import format_duration

if TYPE_CHECKING:
    from stepmeter.analysis.step_time.model import SilentRank, StepTimeWindow


def check(window: StepTimeWindow) -> Issue | None:
    """Give the finding when a rank is silent."""
    silent = window.coverage.silent
    if not silent:
        return None
    latest_step = window.coverage.latest_step or 0
    first = silent[0]
    others = f" {len(silent) - 1} more ranks are silent too." if len(silent) > 1 else ""
    return Issue(
        kind="RANK_SILENT",
        status="RANK SILENT",
        severity=cap("crit", window),
        summary=(
            f"Rank {first.global_rank} is silent since step {first.last_step}, {format_duration(first.age_s)} before "
            f"the others' step {latest_step}.{others}"
        ),
        action=f"Look at the output of rank {first.global_rank} and at its host: did it die, hang, lose its network?",
        score=max(item.behind_steps for item in silent) / latest_step if latest_step else None,
        ranks=tuple(item.global_rank for item in silent),
        evidence={"silent": [_as_evidence(window, item) for item in silent]},
    )


def _as_evidence(window: StepTimeWindow, item: SilentRank) -> dict[str, object]:
    identity = window.identities.get(item.global_rank)
    return {
        "rank": item.global_rank,
        "last_step": item.last_step,
        "behind_steps": item.behind_steps,
        "age_s": item.age_s,
        "host": identity and identity.host,
    }


RULE = Rule(
    ("RANK_SILENT",),
    check,
    __doc__,
    {"min_behind_steps": LIVE_WINDOW_STEPS, "min_age_s": SILENT_AFTER_S, "min_age_steps": SILENT_AFTER_STEPS},
)
