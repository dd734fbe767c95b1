"""From the text of a condition to its parts; what is wrong is said with its column."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any, Final, NoReturn, cast

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedToken, VisitError

from stepmeter.alerts import tree
from stepmeter.alerts.functions import FUNCTIONS
from stepmeter.errors import UsageError

_WORDS: Final = {
    "$END": "the end",
    "NUMBER": "a number",
    "NAME": "a name",
    "QUOTED": "a quoted name",
    "DURATION": "a time such as 5m",
    "LPAR": '"("',
    "RPAR": '")"',
    "LSQB": '"["',
    "RSQB": '"]"',
    "COMMA": '","',
    "COMPARISON": "a comparison",
    "SUM_SIGN": '"+" or "-"',
    "PRODUCT_SIGN": '"*", "/" or "%"',
    "_OR": '"or"',
    "_AND": '"and"',
    "_NOT": '"not"',
    "TRUE": '"true"',
    "FALSE": '"false"',
}
_MAX_LENGTH: Final = 10_000


def parse_condition(text: str, offset: int = 0) -> tree.Node:
    """Parse a condition.

    Args:
        text: For instance `mean(loss[50]) > 2 * median(loss[500])`.
        offset: Columns before the text in what it is part of.

    Returns:
        Its parts.

    Raises:
        UsageError: It is no condition; the message has the column, what was found and what was expected.
    """
    if len(text) > _MAX_LENGTH:
        raise UsageError(f"alert rule: {len(text)} characters, expected at most {_MAX_LENGTH}; shorten it")
    try:
        parsed: tree.Node = _Build(offset).transform(_parser().parse(text))
    except VisitError as error:
        if isinstance(error.orig_exc, UsageError):
            raise error.orig_exc from None
        raise
    except UnexpectedInput as error:
        _refuse(error, text, offset)
    except RecursionError:
        raise UsageError("alert rule: nested too deep; split it into several") from None
    return parsed


@functools.lru_cache(maxsize=1)
def _parser() -> Lark:
    grammar = resources.files("stepmeter.alerts").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _refuse(error: UnexpectedInput, text: str, offset: int) -> NoReturn:
    expected: set[str] = set()
    if isinstance(error, UnexpectedToken):
        end = error.token.type == "$END"
        found = "the end" if end else f'"{error.token}"'
        position = len(text.rstrip()) if end else (error.token.start_pos or 0)
        expected = set(error.accepts or error.expected)
    elif isinstance(error, UnexpectedCharacters):
        position = cast("int", error.pos_in_stream)  # declared as None, and never is
        found = f'"{text[position]}"'
        expected = set(error.allowed or ())
    else:
        found, position = "the end", len(text.rstrip())
        expected = set(error.expected) if isinstance(error, UnexpectedEOF) else expected
    words = ", ".join(sorted(_WORDS.get(name, name.lower()) for name in expected))
    raise UsageError(f"alert rule, column {offset + position + 1}: found {found}, expected {words or 'a condition'}")


@v_args(inline=True)
class _Build(Transformer):  # type: ignore[type-arg] # lark's generic has no use here
    """Makes our parts of lark's."""

    def __init__(self, offset: int) -> None:
        super().__init__()
        self._offset = offset

    def number(self, token: Token) -> tree.Node:
        return tree.Number(float(token))

    def duration(self, token: Token) -> tree.Node:
        return tree.Duration(str(token))

    def true(self) -> tree.Node:
        return tree.Truth(value=True)

    def false(self) -> tree.Node:
        return tree.Truth(value=False)

    def metric(self, token: Token) -> tree.Node:
        return tree.Metric(str(token))

    def quoted(self, token: Token) -> tree.Node:
        return tree.Metric(str(token)[1:-1])

    def group(self, value: tree.Node) -> tree.Node:
        return value

    def points(self, token: Token) -> int:
        if not token.isdecimal() or int(token) < 1:
            self._wrong(token, f'found window "{token}", expected a whole number of points from 1 or a time')
        return int(token)

    def seconds(self, token: Token) -> tree.Duration:
        size = tree.Duration(str(token))
        if size.seconds <= 0:
            self._wrong(token, f'found window "{token}", expected more than no time')
        return size

    def windowed(self, value: tree.Node, size: Any) -> tree.Node:
        return tree.Windowed(value, size)

    def call(self, name: Token, *arguments: tree.Node) -> tree.Node:
        function = FUNCTIONS.get(str(name))
        if function is None:
            self._wrong(name, f'found function "{name}", expected one of {", ".join(sorted(FUNCTIONS))}')
        problem = function.problem(arguments)
        if problem:
            self._wrong(name, f"{name}() {problem}")
        return tree.Call(str(name), arguments, self._column(name))

    def unary(self, sign: Token, value: tree.Node) -> tree.Node:
        return tree.Unary(str(sign), value)

    def binary(self, left: tree.Node, sign: Token, right: tree.Node) -> tree.Node:
        return tree.Binary(str(sign), left, right)

    def compare(self, *parts: Any) -> tree.Node:
        if len(parts) == 1:
            alone: tree.Node = parts[0]
            return alone
        return tree.Compare(tuple(parts[::2]), tuple(str(sign) for sign in parts[1::2]))

    def not_(self, value: tree.Node) -> tree.Node:
        return tree.Not(value)

    def and_(self, *values: tree.Node) -> tree.Node:
        return tree.And(values) if len(values) > 1 else values[0]

    def or_(self, *values: tree.Node) -> tree.Node:
        return tree.Or(values) if len(values) > 1 else values[0]

    def _column(self, token: Token) -> int:
        return self._offset + (token.start_pos or 0) + 1

    def _wrong(self, token: Token, what: str) -> NoReturn:
        raise UsageError(f"alert rule, column {self._column(token)}: {what}")
