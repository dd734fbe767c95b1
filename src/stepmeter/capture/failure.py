"""Exceptions as OpenTelemetry's semantic conventions describe them."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any, Final

_STACK_LIMIT: Final = 16_384
_MESSAGE_LIMIT: Final = 4096


def describe_exception(error: BaseException, at_ns: int) -> tuple[str, tuple[str, int, Mapping[str, Any]]]:
    """Describe an exception; never raises.

    Args:
        error: The exception.
        at_ns: When, monotonic.

    Returns:
        Its class as `error.type` has it, and the event `exception` with type, message and the end of the stack.

    Source:
        OpenTelemetry semantic conventions, "Exceptions on spans".
    """
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    described = {"exception.type": name, "exception.message": _message(error), "exception.stacktrace": _stack(error)}
    return name, ("exception", at_ns, described)


def _message(error: BaseException) -> str:
    try:
        return str(error)[:_MESSAGE_LIMIT]
    except Exception:  # a user's __str__
        return ""


def _stack(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-_STACK_LIMIT:]
    except Exception:  # a user's __str__, or source that can't be read
        return ""
