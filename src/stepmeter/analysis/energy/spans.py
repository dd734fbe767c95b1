"""Steps of a trajectory from spans: of agent frameworks, or of the user's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from stepmeter.analysis.energy.steps import Kind, TrajectoryStep
from stepmeter.analysis.energy.trajectory import DroppedStep
from stepmeter.analysis.queries import query

if TYPE_CHECKING:
    from stepmeter.store.reader import Snapshot


class _Span(NamedTuple):
    """One row of `sql/energy_genai_spans.sql`."""

    span_id: str
    trace_id: str
    parent_span_id: str | None
    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    model: str | None
    input_tokens: int | None
    output_tokens: int | None


def genai_steps(source: Snapshot) -> tuple[list[TrajectoryStep], tuple[DroppedStep, ...]]:
    """Calls of models and tools as an agent framework's instrumentation recorded them.

    A span that encloses another of them, as a tool that is an agent itself or a wrapper around a client's call, is
    not a step: its time is its children's, and counting both would count energy twice.

    Args:
        source: One snapshot of the store.

    Returns:
        The steps, numbered by start from 1, and the spans that enclose others.
    """
    spans = [_Span(*row) for row in source.rows(query("energy_genai_spans"))]
    traces = sorted({span.trace_id for span in spans})
    rows = source.rows(query("energy_span_parents"), (traces,)) if traces else []
    enclosing = _ancestors(spans, {(trace, span): parent for trace, span, parent in rows})
    steps, dropped = [], []
    for number, span in enumerate(spans, 1):
        if (span.trace_id, span.span_id) in enclosing:
            dropped.append(DroppedStep(number, "encloses_other_steps"))
        else:
            steps.append(_step(number, span))
    return steps, tuple(dropped)


def user_steps(source: Snapshot, path: str) -> list[TrajectoryStep]:
    """Spans of the user's own.

    Args:
        source: One snapshot of the store.
        path: Their path, in which `*` stands for any text.

    Returns:
        The steps, numbered by start from 1.
    """
    rows = source.rows(query("energy_user_spans"), (path,))
    return [TrajectoryStep(number, "span", start, end, name) for number, (name, start, end) in enumerate(rows, 1)]


def _ancestors(spans: Iterable[_Span], parents: Mapping[tuple[str, str], str | None]) -> set[tuple[str, str]]:
    """All spans above any of `spans`."""
    found: set[tuple[str, str]] = set()
    for span in spans:
        above = span.parent_span_id
        while above is not None and (span.trace_id, above) not in found:
            found.add((span.trace_id, above))
            above = parents.get((span.trace_id, above))
    return found


def _step(number: int, span: _Span) -> TrajectoryStep:
    return TrajectoryStep(
        number, span.kind, span.start_ns, span.end_ns, span.name, span.model, span.input_tokens, span.output_tokens
    )
