"""What of ours travels in the OpenTelemetry context: the span that is open, and the step that the program named."""

from __future__ import annotations

from typing import Final

from opentelemetry import trace
from opentelemetry.context import create_key
from opentelemetry.context.context import Context

OURS: Final = create_key("stepmeter-span")
"""Key of the innermost span of ours."""

STEP_SCOPE: Final = create_key("stepmeter-step")
"""Key of the step scope."""

OTEL_SPAN: Final = next(iter(trace.set_span_in_context(trace.INVALID_SPAN, Context())))
"""OpenTelemetry's own key of the current span, so that one new context can hold both."""
