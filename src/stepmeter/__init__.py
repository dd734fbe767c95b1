"""Where did the time go, and where did the energy go? OpenTelemetry-native step telemetry for PyTorch."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepmeter.capture.step import abort_step_capture, complete_step_capture
    from stepmeter.instrumentation.explicit import trace_step, wrap_loader
    from stepmeter.runtime.session import instrument

__version__ = "0.1.0"

__all__ = ["abort_step_capture", "complete_step_capture", "instrument", "trace_step", "wrap_loader"]

_HOMES = {
    "abort_step_capture": "stepmeter.capture.step",
    "complete_step_capture": "stepmeter.capture.step",
    "instrument": "stepmeter.runtime.session",
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
