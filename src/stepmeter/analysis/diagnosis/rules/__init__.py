"""The rules, one a file, in the order that decides between findings of equal severity and score."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.analysis.diagnosis.rules import (
    balanced,
    compute_bound,
    h2d_bound,
    h2d_stalls,
    hidden_skew,
    incomplete_data,
    incomplete_record,
    input_bound,
    input_stalls,
    no_data,
    rank_silent,
    residual_heavy,
    residual_stalls,
    slow_rank,
    slowdown,
    straggler,
    warmup,
)

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Rule
    from stepmeter.analysis.step_time.model import StepTimeWindow

GATES: tuple[Rule[StepTimeWindow], ...] = (no_data.RULE, warmup.RULE)
"""Too little to judge: the first that applies is the only finding."""

RULES: tuple[Rule[StepTimeWindow], ...] = (
    incomplete_record.RULE,
    rank_silent.RULE,
    straggler.RULE,
    slow_rank.RULE,
    input_bound.RULE,
    input_stalls.RULE,
    h2d_bound.RULE,
    h2d_stalls.RULE,
    residual_heavy.RULE,
    residual_stalls.RULE,
    slowdown.RULE,
    compute_bound.RULE,
    hidden_skew.RULE,
)

CONCLUSIONS: tuple[Rule[StepTimeWindow], ...] = (incomplete_data.RULE, balanced.RULE)
"""What is left when no rule found anything."""
