"""The step in progress as OpenTelemetry sees it: ids that spans inside it take as their parent's.

The step's own span is made when the step has completed; its ids are known before, from the run, the attempt, the
number of the step and the rank.
"""

from __future__ import annotations

from hashlib import blake2b

from opentelemetry import trace
from opentelemetry.context import attach, get_current
from opentelemetry.context.context import Context
from opentelemetry.trace import SpanContext, TraceFlags

from stepmeter.capture import recording
from stepmeter.capture.identity import Identity
from stepmeter.capture.scope import OTEL_SPAN
from stepmeter.capture.step import Recorder


def step_ids(run_id: str, attempt: int, rank: int, step: int) -> tuple[bytes, bytes]:
    """The ids of a step's span.

    Args:
        run_id: The run.
        attempt: Which start of the run, from 0.
        rank: Global rank.
        step: Number of the step in its process, from 1.

    Returns:
        (trace id of 16 bytes, span id of 8 bytes); ranks agree on the trace without a word between them.
    """
    trace_id = blake2b(f"{run_id}\0{attempt}\0{step}".encode(), digest_size=16).digest()
    return trace_id, blake2b(rank.to_bytes(8, "big"), key=trace_id, digest_size=8).digest()


def step_span_context(run_id: str, identity: Identity, step: int) -> SpanContext:
    """The context of a step's span, for spans that are its children or link it.

    Args:
        run_id: The run.
        identity: Which attempt and rank.
        step: Number of the step in its process, from 1.

    Returns:
        Its ids.
    """
    trace_id, span_id = (
        int.from_bytes(each, "big") for each in step_ids(run_id, identity.attempt, identity.rank, step)
    )
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


class StepSpan(trace.NonRecordingSpan):
    """Stands for the span of a step while the step lasts; afterwards for what is around it.

    Args:
        recorder: Whose step is in progress.
        outside: The context around the step.
    """

    def __init__(self, recorder: Recorder, outside: Context) -> None:
        super().__init__(trace.INVALID_SPAN_CONTEXT)
        self._recorder = recorder
        self._ids: SpanContext | None = None
        self.outside = outside
        self.ended = False

    def get_span_context(self) -> SpanContext:
        """Made when it is first asked for: a step without spans of others does not pay for it."""
        if self.ended:
            around = self.outside.get(OTEL_SPAN)
            return around.get_span_context() if isinstance(around, trace.Span) else trace.INVALID_SPAN_CONTEXT
        if self._ids is None:
            self._ids = self._make()
        return self._ids

    def _make(self) -> SpanContext:
        spans = recording.current
        context = step_span_context(spans.run_id, self._recorder.identity, self._recorder.steps + 1)
        if spans.decide is None or spans.decide(None, context.trace_id, "step"):  # as the sampler decides on a root
            return context
        return SpanContext(context.trace_id, context.span_id, is_remote=False)


def enter_step(recorder: Recorder) -> StepSpan | None:
    """Make the step in progress the parent of spans from here on; `leave_step` ends that.

    Args:
        recorder: Whose step is in progress.

    Returns:
        What stands for it; None where spans are not recorded.
    """
    if not recording.current.recording:
        return None
    outside = get_current()
    while isinstance(current := outside.get(OTEL_SPAN), StepSpan) and current.ended:
        outside = current.outside  # somebody left a span open in an earlier step
    span = StepSpan(recorder, outside)
    attach(Context({**outside, OTEL_SPAN: span}))
    return span


def leave_step(span: StepSpan | None) -> None:
    """End what `enter_step` began; to be called before the step is completed.

    Args:
        span: What it returned.
    """
    if span is None:
        return
    span.ended = True
    if get_current().get(OTEL_SPAN) is span:
        attach(span.outside)
