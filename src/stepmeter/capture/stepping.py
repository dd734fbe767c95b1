"""`stepmeter.step(n)`: a block whose spans belong to a step that the program names."""

from __future__ import annotations

import operator
from types import TracebackType
from typing import Any

from opentelemetry.context import attach, get_current
from opentelemetry.context.context import Context

from stepmeter.capture import recording
from stepmeter.capture.recording import SpanSink
from stepmeter.capture.row import StepScope
from stepmeter.capture.scope import STEP_SCOPE


class _StepBlock:
    __slots__ = ("_book", "_outside", "_scope")

    def __init__(self, step: int) -> None:
        self._scope = StepScope(step)
        self._outside: Context | None = None
        self._book: SpanSink | None = None

    def __enter__(self) -> StepScope:
        self._book = recording.current.rows
        if self._book is not None:
            self._book.open_step(self._scope.step)
        self._outside = get_current()
        attach(Context({**self._outside, STEP_SCOPE: self._scope}))
        return self._scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._outside is not None and get_current().get(STEP_SCOPE) is self._scope:
            attach(self._outside)
        if self._book is not None:
            self._book.close_step(self._scope.step)


def step(number: Any, /) -> _StepBlock:
    """Name the step of a block: spans that start inside belong to it, however long they last.

    At the end of the block the step's row commits, with what was logged inside.

    Args:
        number: The step, a whole number.

    Returns:
        A context manager.

    Raises:
        TypeError: `number` is no whole number.
    """
    return _StepBlock(operator.index(number))


def scoped_step() -> int | None:
    """The step of the block around.

    Returns:
        The step; None outside.
    """
    scope = get_current().get(STEP_SCOPE)
    return scope.step if isinstance(scope, StepScope) else None
