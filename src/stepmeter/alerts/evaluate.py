"""Conditions as functions of what is in memory; true, false or unknown.

A condition is turned into nested closures once, since walking its parts for every row costs three times as much.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from stepmeter.alerts.functions import FUNCTIONS, Function, Point, Points
from stepmeter.alerts.logic import Condition, Evaluate, Value, applied, comparison, junction, known, truth
from stepmeter.alerts.memory import Memory, RowMemory
from stepmeter.alerts.tree import (
    And,
    Binary,
    Call,
    Compare,
    Duration,
    Metric,
    Node,
    Not,
    Number,
    Or,
    Truth,
    Unary,
    Windowed,
    metrics_of,
)
from stepmeter.conventions.rows import number

Look = Callable[[Memory], Sequence[Any] | None]
"""Points, or their values; None where unknown."""

_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def compile_condition(node: Node) -> Condition:
    """Make a function of a condition.

    Args:
        node: The condition.

    Returns:
        Of what is in memory: True, False, or None where it is unknown. It never raises.
    """
    value = _value(node)
    return lambda memory: truth(value(memory))


def compile_value(node: Node) -> Evaluate:
    """Make a function of a value inside a condition, for showing it.

    Args:
        node: The value.

    Returns:
        Of what is in memory: a number, a truth value, or None.
    """
    return _value(node)


def _value(node: Node) -> Evaluate:
    if isinstance(node, Number | Truth):
        constant = node.value
        return lambda _: constant
    if isinstance(node, Duration):
        seconds = node.seconds
        return lambda _: seconds
    if isinstance(node, Metric):
        return lambda memory: found[-1] if (found := memory.values(node.name)) else None
    if isinstance(node, Windowed):
        look = _look(node, 1)
        return lambda memory: found[-1] if (found := look(memory)) else None
    if isinstance(node, Call):
        return _call(node)
    if isinstance(node, Not):
        inner = compile_condition(node.value)
        return lambda memory: None if (found := inner(memory)) is None else not found
    if isinstance(node, And | Or):
        return junction([compile_condition(each) for each in node.values], isinstance(node, Or))
    if isinstance(node, Compare):
        return comparison([_value(each) for each in node.values], node.signs)
    return _arithmetic(node)


def _arithmetic(node: Unary | Binary) -> Evaluate:
    if isinstance(node, Unary):
        inner, negative = _value(node.value), node.sign == "-"
        return lambda memory: None if (found := known(inner(memory))) is None else (-found if negative else found)
    left, right, combine = _value(node.left), _value(node.right), _ARITHMETIC[node.sign]
    return lambda memory: applied(combine, (known(left(memory)), known(right(memory))))


def _call(node: Call) -> Evaluate:
    function, arguments = FUNCTIONS[node.function], node.arguments
    if function.kind == "clock":
        return _clock(function.name, arguments)
    if function.kind == "latest":
        return _of_metric(function.name, arguments[0])
    if function.kind == "scalar" or (function.kind == "rolling" and len(arguments) > 1):
        values = [_value(each) for each in arguments]
        several: Mapping[str, Callable[..., Any]] = {"min": min, "max": max}
        apply = several.get(function.name, function.apply)
        return lambda memory: applied(apply, tuple(known(value(memory)) for value in values))
    return _over_points(function, arguments)


def _over_points(function: Function, arguments: Sequence[Node]) -> Evaluate:
    whole = {"rolling": None, "pair": 2}.get(function.kind)
    look = _look(arguments[0], whole, whatever=function.name == "count", steps=function.steps)
    more = [_value(each) for each in arguments[1:]]
    least, apply = function.least, function.apply

    def evaluated(memory: Memory) -> Value:
        found = look(memory)
        if found is None or len(found) < least:
            return None
        return applied(apply, (found, *[value(memory) for value in more]))

    return evaluated


def _look(node: Node, default: int | None, *, whatever: bool = False, steps: bool = False) -> Look:
    """What is in a window, as points or as values; None while it is not full or holds no number, unless `whatever`."""
    value, size = (node.value, node.size) if isinstance(node, Windowed) else (node, default)
    if isinstance(value, Metric) and not steps and not isinstance(size, Duration):
        return _newest_values(value.name, size, whatever=whatever)
    source = _source(value)
    names = metrics_of(value)

    def look(memory: Memory) -> Sequence[Any] | None:
        points = source(memory, size if isinstance(size, int) else None)
        if isinstance(size, Duration):
            since_s = memory.now_s - size.seconds
            found = points[bisect_left(points, since_s, key=lambda point: point[1]) :]
            full = all(memory.began_s(name) <= since_s for name in names)
        else:
            found = points if size is None else points[-size:]
            full = size is None or len(found) == size
        values = [point[2] for point in found]
        if not whatever and not (full and math.isfinite(sum(values))):
            return None
        return found if steps else values

    return look


def _newest_values(name: str, size: int | None, *, whatever: bool) -> Look:
    """The same for so many values of a metric, which is what most rules look at."""

    def look(memory: Memory) -> Sequence[float] | None:
        values = memory.values(name)
        found = values if size is None else values[-size:]
        if whatever:
            return found
        # one sum instead of a look at each: NaN and infinities stay in it
        return found if (size is None or len(found) == size) and math.isfinite(sum(found)) else None

    return look


def _source(node: Node) -> Callable[[Memory, int | None], Points]:
    """All points of a value, or at least so many of the newest."""
    if isinstance(node, Metric):
        return lambda memory, _: memory.points(node.name)
    names, at_row = metrics_of(node), _pointwise(node)

    def computed(memory: Memory, wanted: int | None) -> Points:
        found: list[Point] = []
        for step, at_s, values in reversed(memory.rows()):
            if len(found) == wanted:
                break
            looked_up = {name: number(values.get(name, values.get(name.replace(".", "/")))) for name in names}
            if None not in looked_up.values():
                value = known(at_row(looked_up))
                found.append((step, at_s, math.nan if value is None else float(value)))
        return found[::-1]

    return computed


def _pointwise(node: Node) -> Callable[[Mapping[str, Any]], Value]:
    """A value without a window, of one row's numbers."""
    memory = RowMemory()
    value = _value(node)

    def at_row(values: Mapping[str, Any]) -> Value:
        memory.row = values
        return value(memory)

    return at_row


def _clock(name: str, arguments: Sequence[Node]) -> Evaluate:
    if name == "step":
        return lambda memory: memory.step
    if name == "elapsed":
        return lambda memory: memory.now_s - memory.start_s
    limit = _value(arguments[0])
    return lambda memory: None if (at := known(limit(memory))) is None else memory.now_s - memory.last_row_s >= at


def _of_metric(name: str, argument: Node) -> Evaluate:
    metric = argument.name if isinstance(argument, Metric) else ""
    if name == "has":
        return lambda memory: memory.has(metric)
    if name == "age":
        return lambda memory: memory.now_s - points[-1][1] if (points := memory.points(metric)) else None
    test = math.isnan if name == "isnan" else math.isinf
    return lambda memory: test(points[-1][2]) if (points := memory.points(metric)) else None
