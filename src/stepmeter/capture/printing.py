"""Spans that announce themselves: one line at the start, one at the end, indented by their nesting."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from stepmeter.capture.recording import SpanRecorder
    from stepmeter.capture.span import Span


class Printer(NamedTuple):
    """Who prints a tree of spans.

    Attributes:
        write: Called with one line.
        base: Depth of the span where printing began; indentation is relative to it.
    """

    write: Callable[[str], Any]
    base: int

    @classmethod
    def of(cls, print_fn: Callable[[str], Any] | None, depth: int) -> Printer | None:
        """Make the printer of a span that brought its own handler.

        Args:
            print_fn: The handler; None for silence.
            depth: The span's depth.

        Returns:
            The printer, or None.
        """
        return None if print_fn is None else cls(print_fn, depth)


def print_start(span: Span, recorder: SpanRecorder) -> None:
    """Announce a span.

    Args:
        span: It is about to start.
        recorder: Takes what the handler raises.
    """
    _write(span, recorder, f"-> {span.name}  {time.strftime('%H:%M:%S')}")


def print_end(span: Span, recorder: SpanRecorder) -> None:
    """Say how long a span took, what plugins measured, and what ended it.

    Args:
        span: It has ended.
        recorder: Takes what the handler raises.
    """
    line = f"<- {span.name}  {time.strftime('%H:%M:%S')}  {span.duration_ms:.3f}ms"
    for key, value in (span.metrics or {}).items():
        line += f"  {key}={value}"
    if span.error is not None:
        line += f"  !{span.error.rpartition('.')[2]}"
    _write(span, recorder, line)


def _write(span: Span, recorder: SpanRecorder, line: str) -> None:
    printer = span.printer
    if printer is None:
        return
    try:
        printer.write("  " * max(0, span.depth - printer.base) + line)
    except Exception as error:  # the user's handler
        recorder.complain("print_fn", f"print_fn failed and is passed over: {type(error).__name__}: {error}")
