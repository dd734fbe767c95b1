"""Where did the time go, and where did the energy go? OpenTelemetry-native step telemetry for PyTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepmeter.capture.ending import abort_step_capture, complete_step_capture
    from stepmeter.capture.spans import current_span, span, start_span
    from stepmeter.capture.stepping import step
    from stepmeter.instrumentation.explicit import trace_step, wrap_loader
    from stepmeter.runtime.session import instrument
    from stepmeter.runtime.user_run import finish, flush, get_run, history, init, log, summary

__version__ = "0.1.0"

__all__ = [
    "abort_step_capture",
    "complete_step_capture",
    "current_span",
    "finish",
    "flush",
    "get_run",
    "history",
    "init",
    "instrument",
    "log",
    "span",
    "start_span",
    "step",
    "summary",
    "trace_step",
    "wrap_loader",
]

_HOMES = {
    "abort_step_capture": "stepmeter.capture.ending",
    "complete_step_capture": "stepmeter.capture.ending",
    "current_span": "stepmeter.capture.spans",
    "finish": "stepmeter.runtime.user_run",
    "flush": "stepmeter.runtime.user_run",
    "get_run": "stepmeter.runtime.user_run",
    "history": "stepmeter.runtime.user_run",
    "init": "stepmeter.runtime.user_run",
    "instrument": "stepmeter.runtime.session",
    "log": "stepmeter.runtime.user_run",
    "span": "stepmeter.capture.spans",
    "start_span": "stepmeter.capture.spans",
    "step": "stepmeter.capture.stepping",
    "summary": "stepmeter.runtime.user_run",
    "trace_step": "stepmeter.instrumentation.explicit",
    "wrap_loader": "stepmeter.instrumentation.explicit",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing stepmeter costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'stepmeter' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
