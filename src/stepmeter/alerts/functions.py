"""The functions of conditions: what each takes, and its formula over the points of a window.

None stands for unknown throughout: too few points, no number, a division by zero, a value outside a domain.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from stepmeter.alerts.tree import Call, Duration, Metric, Node, Number, Unary, Windowed, walk

Point = tuple[int, float, float]
"""(step, Unix time in s, value)."""

Points = Sequence[Point]
Values = Sequence[float]
Kind = Literal["window", "rolling", "pair", "latest", "clock", "scalar"]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of conditions.

    Attributes:
        name: Its name.
        kind: `window` needs a window; `rolling` takes one or the whole memory, or several numbers; `pair` takes one or
            the last two points; `latest` looks at a metric itself; `clock` at time and steps; `scalar` at numbers.
        brief: What it gives.
        apply: Its formula: of values (or points) and further numbers, or of numbers.
        least: Fewest points that it needs.
        extra: Most further arguments.
        needed: Fewest further arguments.
        steps: Whether its formula is of points, with their steps, and not of values.
    """

    name: str
    kind: Kind
    brief: str
    apply: Callable[..., Any]
    least: int = 1
    extra: int = 0
    needed: int = 0
    steps: bool = False

    def problem(self, arguments: Sequence[Node]) -> str:
        """What is wrong with arguments.

        Args:
            arguments: As they were written.

        Returns:
            The rest of a sentence that begins with the function; empty when nothing is wrong.
        """
        if self.kind == "rolling":
            return "" if arguments else "needs an argument"
        own = {"scalar": 0, "clock": 0}.get(self.kind, 1)
        low, high = own + self.needed, own + self.extra
        if not low <= len(arguments) <= high:
            expected = str(low) if low == high else f"{low} to {high}"
            return f"has {len(arguments)} arguments, expected {expected}"
        if not own:
            return ""
        if self.kind == "latest" and not isinstance(arguments[0], Metric):
            return "needs the name of a metric"
        if self.kind == "window" and not isinstance(arguments[0], Windowed):
            return f"needs a window, such as {self.name}(loss[50])"
        if not any(isinstance(part, Metric) for part in walk(arguments[0])):
            return "needs a metric in its window"
        if any(isinstance(part, Windowed | Call) and _looks_back(part) for part in _inside(arguments[0])):
            return "can't have a window inside its window"
        return _constants(self.name, arguments[1:])


def _inside(argument: Node) -> list[Node]:
    value = argument.value if isinstance(argument, Windowed) else argument
    return walk(value)


def _looks_back(node: Node) -> bool:
    return isinstance(node, Windowed) or (isinstance(node, Call) and FUNCTIONS[node.function].kind != "scalar")


def _constants(name: str, more: Sequence[Node]) -> str:
    for each in more:
        value = each.value if isinstance(each, Unary) else each
        if not isinstance(value, Number | Duration):
            return "needs a number as its second argument"
        if name == "quantile" and not (isinstance(each, Number) and each.value <= 1):
            return "needs a number from 0 to 1 as its second argument"
        if name == "ema" and not (isinstance(each, Number) and 0 < each.value <= 1):
            return "needs a number above 0 and up to 1 as its second argument"
    return ""


def mean(values: Values) -> float:
    """Arithmetic mean; a plain sum, since an exact one takes ten times as long."""
    return sum(values) / len(values)


def variance(values: Values) -> float:
    """Population variance: the mean square of the deviations."""
    middle = mean(values)
    return math.fsum([(value - middle) ** 2 for value in values]) / len(values)


def median(values: Values) -> float:
    """Middle value; of an even number the mean of the two in the middle."""
    return quantile(values, 0.5)


def quantile(values: Values, share: float) -> float:
    """Value below which a share lies, linear between the two nearest.

    Source:
        Hyndman and Fan 1996, definition 7.
    """
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def rate(points: Points) -> float | None:
    """Change per step from the first point to the last."""
    steps = points[-1][0] - points[0][0]
    return (points[-1][2] - points[0][2]) / steps if steps else None


def pct_change(values: Values) -> float | None:
    """Change from the first value to the last as a share of the first."""
    return (values[-1] - values[0]) / abs(values[0]) if values[0] else None


def slope(points: Points) -> float | None:
    """Slope of the least-squares line over steps."""
    middle_step = math.fsum([point[0] for point in points]) / len(points)
    middle = math.fsum([point[2] for point in points]) / len(points)
    spread = math.fsum([(point[0] - middle_step) ** 2 for point in points])
    together = math.fsum([(point[0] - middle_step) * (point[2] - middle) for point in points])
    return together / spread if spread else None


def zscore(values: Values) -> float | None:
    """Distance of the last value from the mean of those before it, in their standard deviations.

    The last value is left out of its reference; with it in, no score could exceed the root of n - 1.
    """
    before = values[:-1]
    deviation = math.sqrt(variance(before))
    return (values[-1] - mean(before)) / deviation if deviation else None


def ema(values: Values, alpha: float = 0.3) -> float:
    """Exponential moving average, from the oldest value on."""
    average = values[0]
    for value in values[1:]:
        average = alpha * value + (1 - alpha) * average
    return average


def stalled(values: Values, epsilon: float = 0.0) -> bool:
    """Whether the values stay within `epsilon` of one another."""
    return max(values) - min(values) <= epsilon


def increasing(values: Values) -> bool:
    """Whether each value is above the one before."""
    return all(before < after for before, after in pairwise(values))


def decreasing(values: Values) -> bool:
    """Whether each value is below the one before."""
    return all(before > after for before, after in pairwise(values))


def _log(value: float, base: float = math.e) -> float:
    return math.log(value, base)


_ALL: Final = (
    Function("mean", "window", "arithmetic mean", mean),
    Function("sum", "window", "sum", math.fsum),
    Function("median", "window", "middle value", median),
    Function("std", "window", "population standard deviation", lambda values: math.sqrt(variance(values)), 2),
    Function("var", "window", "population variance", variance, 2),
    Function("quantile", "window", "value below which a share lies", quantile, extra=1, needed=1),
    Function("first", "window", "oldest value", operator.itemgetter(0)),
    Function("last", "rolling", "newest value", operator.itemgetter(-1)),
    Function("count", "window", "number of points", len, 0),
    Function("min", "rolling", "least value, or least of several numbers", min),
    Function("max", "rolling", "greatest value, or greatest of several numbers", max),
    Function("diff", "pair", "last less first", lambda values: values[-1] - values[0], 2),
    Function("rate", "pair", "change per step", rate, 2, steps=True),
    Function("pct_change", "pair", "change as a share of the first", pct_change, 2),
    Function("slope", "window", "slope over steps", slope, 2, steps=True),
    Function("zscore", "window", "distance of the last from those before, in their deviations", zscore, 3),
    Function("ema", "window", "exponential moving average; second argument 0.3", ema, extra=1),
    Function("stalled", "window", "whether values stay within a distance; second argument 0", stalled, 2, extra=1),
    Function("increasing", "window", "whether each value is above the one before", increasing, 2),
    Function("decreasing", "window", "whether each value is below the one before", decreasing, 2),
    Function("isnan", "latest", "whether the newest value is NaN", math.isnan),
    Function("isinf", "latest", "whether the newest value is infinite", math.isinf),
    Function("has", "latest", "whether it was ever logged", bool),
    Function("age", "latest", "seconds since its newest value", float),
    Function("no_data", "clock", "whether nothing was logged for so many seconds", float, extra=1, needed=1),
    Function("step", "clock", "step of the row", int),
    Function("elapsed", "clock", "seconds since the start", float),
    Function("abs", "scalar", "absolute value", abs, extra=1, needed=1),
    Function("exp", "scalar", "exponential", math.exp, extra=1, needed=1),
    Function("sqrt", "scalar", "square root", math.sqrt, extra=1, needed=1),
    Function("floor", "scalar", "next whole number below", math.floor, extra=1, needed=1),
    Function("ceil", "scalar", "next whole number above", math.ceil, extra=1, needed=1),
    Function("log", "scalar", "logarithm; second argument e", _log, extra=2, needed=1),
)

FUNCTIONS: Final = {function.name: function for function in _ALL}
"""Every function by name."""

TIME_BASED: Final = frozenset({"age", "no_data", "elapsed"})
"""Functions whose value changes without a row."""
