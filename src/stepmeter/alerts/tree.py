"""The parts of a condition, and how they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Union

DURATION_S: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
KEYWORDS: Final = frozenset({"and", "or", "not", "true", "false"})
BARE_NAME: Final = re.compile(r"[^\W\d][\w.@]*(/[\w.@]+)*\Z")


@dataclass(frozen=True, slots=True)
class Number:
    """A number, 0 or more; a sign is a `Unary`."""

    value: float


@dataclass(frozen=True, slots=True)
class Duration:
    """A time as it was written, such as `5m`; as a value, seconds."""

    text: str

    @property
    def seconds(self) -> float:
        """The time in s."""
        digits = self.text.rstrip("minshd")
        return float(digits) * DURATION_S[self.text[len(digits) :]]


@dataclass(frozen=True, slots=True)
class Truth:
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Metric:
    """A value of `log()` or of a span, by name."""

    name: str


@dataclass(frozen=True, slots=True)
class Windowed:
    """The newest points of a value: so many, or those of so long."""

    value: Node
    size: int | Duration


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments."""

    function: str
    arguments: tuple[Node, ...]
    column: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """`+` or `-` before a value."""

    sign: str
    value: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """Two values and one of + - * / %."""

    sign: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Compare:
    """Two or more values with comparisons between them; all must hold."""

    values: tuple[Node, ...]
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite."""

    value: Node


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more."""

    values: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more."""

    values: tuple[Node, ...]


Node = Union[Number, Duration, Truth, Metric, Windowed, Call, Unary, Binary, Compare, Not, And, Or]  # noqa: UP007 - evaluated

_OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _UNARY, _POSTFIX = range(8)


def render(node: Node) -> str:
    """Write a condition in its canonical form; parsing that gives the same condition again.

    Args:
        node: The condition.

    Returns:
        Its text, with parentheses only where they are needed.
    """
    return _render(node, _OR)


def metrics_of(node: Node) -> frozenset[str]:
    """The names of the metrics in a condition.

    Args:
        node: The condition.

    Returns:
        The names as they are written.
    """
    return frozenset(part.name for part in walk(node) if isinstance(part, Metric))


def walk(node: Node) -> list[Node]:
    """Every part of a condition, itself first.

    Args:
        node: The condition.

    Returns:
        The parts, outer before inner.
    """
    found = [node]
    for child in _children(node):
        found += walk(child)
    return found


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Call):
        return node.arguments
    if isinstance(node, Compare | And | Or):
        return node.values
    if isinstance(node, Binary):
        return (node.left, node.right)
    if isinstance(node, Windowed | Unary | Not):
        return (node.value,)
    return ()


def _render(node: Node, around: int) -> str:
    text, level = _text(node)
    return f"({text})" if level < around else text


def _text(node: Node) -> tuple[str, int]:
    if isinstance(node, Or):
        return " or ".join(_render(value, _AND) for value in node.values), _OR
    if isinstance(node, And):
        return " and ".join(_render(value, _NOT) for value in node.values), _AND
    if isinstance(node, Not):
        return f"not {_render(node.value, _NOT)}", _NOT
    if isinstance(node, Compare):
        parts = [_render(node.values[0], _SUM)]
        for sign, value in zip(node.signs, node.values[1:], strict=True):
            parts += [sign, _render(value, _SUM)]
        return " ".join(parts), _COMPARE
    if isinstance(node, Binary):
        level = _SUM if node.sign in "+-" else _PRODUCT
        return f"{_render(node.left, level)} {node.sign} {_render(node.right, level + 1)}", level
    if isinstance(node, Unary):
        return f"{node.sign}{_render(node.value, _UNARY)}", _UNARY
    if isinstance(node, Windowed):
        size = node.size.text if isinstance(node.size, Duration) else str(node.size)
        return f"{_render(node.value, _POSTFIX + 1)}[{size}]", _POSTFIX
    return _atom(node), _POSTFIX + 1


def _atom(node: Node) -> str:
    if isinstance(node, Call):
        return f"{node.function}({', '.join(_render(each, _OR) for each in node.arguments)})"
    if isinstance(node, Metric):
        return _name(node.name)
    if isinstance(node, Truth):
        return "true" if node.value else "false"
    if isinstance(node, Duration):
        return node.text
    if isinstance(node, Number):
        return str(int(node.value)) if node.value == int(node.value) and node.value < 1e15 else repr(node.value)
    raise TypeError(type(node).__name__)


def _name(name: str) -> str:
    if BARE_NAME.match(name) and name not in KEYWORDS:
        return name
    quote = next(mark for mark in "\"'`" if mark not in name)
    return f"{quote}{name}{quote}"
