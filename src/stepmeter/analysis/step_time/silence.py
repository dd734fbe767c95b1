"""Which ranks stopped while others went on."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from stepmeter.analysis.step_time.model import LIVE_WINDOW_STEPS, SilentRank
from stepmeter.analysis.step_time.source import RankProgress

SILENT_AFTER_S = 30.0
SILENT_AFTER_STEPS = 20
"""A rank is silent after the longer of these two; the second counts steps of usual length."""


def silent_ranks(progress: Mapping[int, RankProgress]) -> tuple[SilentRank, ...]:
    """Find the ranks that are more than a live window behind and silent for long.

    Age is counted to the latest end of a step of any rank, not to now: a finished run has no silent ranks for
    having ended.

    Args:
        progress: How far each reporting rank has come.

    Returns:
        The silent ranks, ascending; at least one rank is never silent.
    """
    if len(progress) < 2:
        return ()
    latest_step = max(item.last_step for item in progress.values())
    latest_end_ns = max(item.last_end_ns for item in progress.values())
    patience_s = max(SILENT_AFTER_S, SILENT_AFTER_STEPS * _usual_step_s(progress))
    silent = []
    for rank, item in sorted(progress.items()):
        behind_steps = latest_step - item.last_step
        age_s = (latest_end_ns - item.last_end_ns) / 1e9
        if behind_steps > LIVE_WINDOW_STEPS and age_s >= patience_s:
            silent.append(SilentRank(rank, item.last_step, behind_steps, age_s))
    return tuple(silent)


def _usual_step_s(progress: Mapping[int, RankProgress]) -> float:
    """Median over ranks of a rank's mean step, gaps included; needs no rows."""
    return statistics.median(
        (item.last_end_ns - item.first_start_ns) / 1e9 / item.recorded_steps for item in progress.values()
    )
