"""Values that may be unknown, and how the parts of a condition are joined: Kleene's logic."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stepmeter.alerts.memory import Memory

Value = float | bool | None
Evaluate = Callable[[Memory], Value]
Condition = Callable[[Memory], bool | None]

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


def truth(value: Value) -> bool | None:
    """What a value means as a condition.

    Args:
        value: The value.

    Returns:
        A number is true unless it is 0; NaN and infinities are unknown.
    """
    if value is None or isinstance(value, bool):
        return value
    return bool(value) if math.isfinite(value) else None


def known(value: Value) -> float | None:
    """The number that a value is.

    Args:
        value: The value.

    Returns:
        It; None where it is unknown, NaN or infinite.
    """
    return None if value is None or not math.isfinite(value) else value


def applied(apply: Callable[..., Any], arguments: Sequence[Any]) -> Value:
    """Apply a function to what may be unknown.

    Args:
        apply: The function.
        arguments: Its arguments.

    Returns:
        Its result; None where an argument is unknown, or where the result is no finite number and no truth value.
    """
    if None in arguments:
        return None
    try:
        result = apply(*arguments)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(result, bool) or result is None:
        return result
    return result if isinstance(result, int | float) and math.isfinite(result) else None


def junction(parts: Sequence[Condition], decisive: bool) -> Evaluate:
    """Join conditions by Kleene's and (decided by False) or or (decided by True).

    Args:
        parts: The conditions.
        decisive: What one of them must be to decide, whatever the others are.

    Returns:
        The condition.
    """

    def joined(memory: Memory) -> bool | None:
        result: bool | None = not decisive
        for part in parts:
            found = part(memory)
            if found is decisive:
                return decisive
            if found is None:
                result = None
        return result

    return joined


def comparison(values: Sequence[Evaluate], signs: Sequence[str]) -> Evaluate:
    """Compare each value with the next.

    Args:
        values: Two or more.
        signs: One between each two.

    Returns:
        The condition: False where one does not hold, else unknown where one is.
    """
    compare = [_COMPARISONS[sign] for sign in signs]
    if len(compare) == 1:
        first, second = values
        return _comparison_of_two(first, second, compare[0])

    def compared(memory: Memory) -> bool | None:
        found = [known(value(memory)) for value in values]
        result: bool | None = True
        for index, holds in enumerate(compare):
            left, right = found[index], found[index + 1]
            if left is None or right is None:
                result = None
            elif not holds(left, right):
                return False
        return result

    return compared


def _comparison_of_two(first: Evaluate, second: Evaluate, holds: Callable[[Any, Any], bool]) -> Evaluate:
    """What most rules are, in half the time."""

    def compared(memory: Memory) -> bool | None:
        left, right = first(memory), second(memory)
        if left is None or right is None or not (math.isfinite(left) and math.isfinite(right)):
            return None
        return holds(left, right)

    return compared
