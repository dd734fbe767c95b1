"""The current OpenTelemetry context, as near to the interpreter as it can be had.

OpenTelemetry's `get_current` and `attach` are two calls deep each; a span takes four of them, a sixth of its cost.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from opentelemetry import context as api
from opentelemetry.context.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext


def _nearest() -> tuple[Callable[[], Context], Callable[[Context], Any]]:
    runtime = getattr(api, "_RUNTIME_CONTEXT", None)
    variable = getattr(runtime, "_current_context", None)
    if type(runtime) is ContextVarsRuntimeContext and isinstance(variable, ContextVar):
        return variable.get, variable.set
    return api.get_current, api.attach  # another runtime context was chosen, or OpenTelemetry has changed inside


get_current, attach = _nearest()
