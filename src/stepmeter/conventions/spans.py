"""The spans we emit, and what each carries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from stepmeter.conventions.attributes import (
    ATTEMPT,
    ERROR_TYPE,
    EXIT_CODE,
    OUTCOME,
    PHASE,
    PHASE_GPU,
    RANK,
    SPAN_PATH,
    STEP,
    STEP_ATTRIBUTES,
    THREAD_ID,
    THREAD_NAME,
    Attribute,
)
from stepmeter.conventions.logs import STREAM
from stepmeter.conventions.phases import PHASES


@dataclass(frozen=True, slots=True)
class SpanKind:
    """One kind of span.

    Attributes:
        name: The span's name.
        brief: When it is made.
        attributes: What it may carry; `Attribute.required` says what it always carries.
    """

    name: str
    brief: str
    attributes: tuple[Attribute, ...]


STEP_SPAN: Final = SpanKind("step", "One completed step of one rank.", STEP_ATTRIBUTES)
RUN_SPAN: Final = SpanKind(
    "run",
    "Start or end of a run: a short span at each, never one that stays open.",
    (ATTEMPT, RANK, OUTCOME, EXIT_CODE),
)
PHASE_SPANS: Final = tuple(
    SpanKind(phase, f"One region of `{phase}`, a child of its step.", (PHASE, STEP, PHASE_GPU)) for phase in PHASES
)

USER_SPAN: Final = SpanKind(
    "(user)",
    "A span that the program made with `stepmeter.span`, under its own name and with its own attributes.",
    (SPAN_PATH, STEP, ATTEMPT, RANK, STREAM, THREAD_ID, THREAD_NAME, ERROR_TYPE),
)

SPANS: Final = (STEP_SPAN, *PHASE_SPANS, RUN_SPAN, USER_SPAN)
