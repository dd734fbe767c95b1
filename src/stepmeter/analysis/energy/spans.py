"""Steps of a trajectory from spans: of agent frameworks, or of the user's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stepmeter.analysis.energy.steps import Kind, TrajectoryStep
from stepmeter.analysis.energy.trajectory import DroppedStep
from stepmeter.analysis.queries import query

if TYPE_CHECKING:
    from stepmeter.store.snapshot import Snapshot


LEAST_PIECE_NS = 1_000_000
"""A wrapper's own time around a call; what is shorter holds no sample of any device and stays unattributed."""


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

    A span that encloses others of them, as a tool that is an agent itself or a wrapper around a client's call, has the
    time that is its own: before, between and after those. Each piece is a step, so that no energy is counted twice.

    Args:
        source: One snapshot of the store.

    Returns:
        The steps, numbered by start from 1, and the spans that have no time of their own.
    """
    spans = [_Span(*row) for row in source.rows(query("energy_genai_spans"))]
    traces = sorted({span.trace_id for span in spans})
    rows = source.rows(query("energy_span_parents"), (traces,)) if traces else []
    enclosed = _enclosed(spans, {(trace, span): parent for trace, span, parent in rows})
    pieces = [piece for span in spans for piece in _pieces(span, enclosed.get((span.trace_id, span.span_id), []))]
    pieces.sort(key=lambda piece: (piece.start_ns, -piece.end_ns, piece.span.span_id))
    steps, dropped = [], []
    for number, piece in enumerate(pieces, 1):
        if piece.of:
            steps.append(_step(number, piece))
        else:
            dropped.append(DroppedStep(number, "encloses_other_steps"))
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
    return [
        TrajectoryStep(number, "span", start, end, name, span_id=span_id)
        for number, (name, start, end, span_id) in enumerate(rows, 1)
    ]


def _enclosed(
    spans: Sequence[_Span], parents: Mapping[tuple[str, str], str | None]
) -> dict[tuple[str, str], list[_Span]]:
    """Of each span those of `spans` whose next of them above it is, whatever lies between."""
    known = {(span.trace_id, span.span_id) for span in spans}
    found: dict[tuple[str, str], list[_Span]] = {}
    for span in spans:
        above, seen = span.parent_span_id, {span.span_id}
        while above is not None and (span.trace_id, above) not in known and above not in seen:
            seen.add(above)
            above = parents.get((span.trace_id, above))
        if above is not None and above not in seen:
            found.setdefault((span.trace_id, above), []).append(span)
    return found


class _Piece(NamedTuple):
    """A stretch of a span that is its own; the first of none, with the span's times, where there is none."""

    span: _Span
    start_ns: int
    end_ns: int
    number: int
    of: int
    has_tokens: bool


def _pieces(span: _Span, inner: Sequence[_Span]) -> list[_Piece]:
    if not inner:
        return [_Piece(span, span.start_ns, span.end_ns, 1, 1, has_tokens=True)]
    edges, reach_ns = [], span.start_ns
    for one in sorted(inner, key=lambda one: one.start_ns):
        edges.append((reach_ns, min(one.start_ns, span.end_ns)))
        reach_ns = max(reach_ns, min(one.end_ns, span.end_ns))
    edges.append((reach_ns, span.end_ns))
    own = [(start, end) for start, end in edges if end - start >= LEAST_PIECE_NS]
    # tokens of a call that was recorded by its client and by what wraps that are the same tokens
    counted = any(one.input_tokens is not None or one.output_tokens is not None for one in inner)
    found = [
        _Piece(span, start, end, index, len(own), has_tokens=index == 1 and not counted)
        for index, (start, end) in enumerate(own, 1)
    ]
    return found or [_Piece(span, span.start_ns, span.end_ns, 1, 0, has_tokens=False)]


def _step(number: int, piece: _Piece) -> TrajectoryStep:
    span = piece.span
    tokens = (span.input_tokens, span.output_tokens) if piece.has_tokens else (None, None)
    is_whole = (piece.start_ns, piece.end_ns) == (span.start_ns, span.end_ns)
    return TrajectoryStep(
        number,
        span.kind,
        piece.start_ns,
        piece.end_ns,
        span.name,
        span.model,
        *tokens,
        span.span_id,
        None if is_whole else (piece.number, piece.of),
    )
