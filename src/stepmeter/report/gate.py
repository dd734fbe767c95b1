"""Conditions on a comparison, such as `step_time>5%`, for a regression gate."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from stepmeter.errors import StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.report.compare import Comparison

_CONDITION: Final = re.compile(r"\s*([a-z][a-z0-9_]*)\s*(>=|<=|>|<)\s*([+-]?\d+(?:\.\d+)?)\s*(%|pp)\s*")
_OPERATORS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that must not hold.

    Attributes:
        text: As it was typed.
        metric: A metric, with or without its unit.
        operator: How to compare.
        threshold: With what, as a fraction.
        unit: `%` for a relative change, `pp` for a change of a share in percentage points.
    """

    text: str
    metric: str
    operator: Literal[">", ">=", "<", "<="]
    threshold: float
    unit: Literal["%", "pp"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a condition.

    Attributes:
        condition: The condition.
        change: The change that it was held against, as a fraction.
        holds: Whether it holds beyond noise.
        reason: Why it does not although the number says so; None otherwise.
    """

    condition: Condition
    change: float
    holds: bool
    reason: str | None = None


def parse(text: str) -> Condition:
    """Read a condition.

    Args:
        text: For instance `step_time>5%`, `peak_reserved>=10%`, `input_wait_share>2pp`.

    Returns:
        The condition.

    Raises:
        UsageError: It is none.
    """
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise UsageError(f'--fail-on "{text}": expected METRIC>NUMBER% or METRIC>NUMBERpp, for example "step_time>5%"')
    metric, sign, number, unit = found.groups()
    return Condition(text.strip(), metric, sign, float(number) / 100, unit)  # type: ignore[arg-type]  # by the pattern


def judge(condition: Condition, comparison: Comparison) -> Outcome:
    """Hold a condition against a comparison.

    Args:
        condition: The condition.
        comparison: The comparison.

    Returns:
        What became of it. A change within the noise of the steps never makes it hold.

    Raises:
        UsageError: There is no such metric in either summary.
        StoreError: The metric was measured in one of them only, or the runs do not compare: a gate that can't be judged
            must not pass.
    """
    if comparison.verdict == "NOT COMPARABLE":
        raise StoreError(f'--fail-on "{condition.text}" can\'t be judged: {comparison.why[0]}')
    change = comparison.change(condition.metric)
    if change is None:
        known = ", ".join(sorted({item.metric for item in comparison.changes}))
        raise UsageError(f'--fail-on "{condition.text}": no metric {condition.metric}; measured: {known}')
    if condition.unit == "pp" and change.unit != "1":
        raise UsageError(f'--fail-on "{condition.text}": {change.metric} is no share; give its change in %')
    if change.before is None or change.after is None:
        letter = "A" if change.before is None else "B"
        raise StoreError(f'--fail-on "{condition.text}" can\'t be judged: {change.metric} was not measured in {letter}')
    value = change.after - change.before if condition.unit == "pp" else change.relative
    if value is None:
        raise StoreError(f'--fail-on "{condition.text}" can\'t be judged: {change.metric} is 0 in A; use a share in pp')
    exceeds = _OPERATORS[condition.operator](value, condition.threshold)
    if exceeds and condition.unit == "%" and change.is_noise:
        return Outcome(condition, value, holds=False, reason="within the noise of the steps")
    return Outcome(condition, value, holds=exceeds)
