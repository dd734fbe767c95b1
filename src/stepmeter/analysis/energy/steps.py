"""Steps of a trajectory, as an agent's driver writes them: one JSON object a line.

    {"step_id": 3, "kind": "llm_call", "t_start_unix_ns": 1784662480568565015, "t_end_unix_ns": 1784662483015179775}

Source: the trajectory decision record, "Driver-side step markers, offline join".
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard

from stepmeter.errors import UsageError

Kind = Literal["llm_call", "tool", "span"]

_FILE_KINDS: Final = ("llm_call", "tool")
_FIELDS: Final = ("step_id", "kind", "t_start_unix_ns", "t_end_unix_ns")


@dataclass(frozen=True, slots=True)
class TrajectoryStep:
    """One step, wherever it was read.

    Attributes:
        step_id: Its number.
        kind: `llm_call`, `tool`, or `span` for a span of the user's own.
        start_unix_ns: When it began, Unix time in ns.
        end_unix_ns: When it ended, Unix time in ns, not before its start.
        name: Name of its span; None for one from a file.
        model: Model that it called; None when not known.
        input_tokens: Prompt tokens as its own span says; None when it does not.
        output_tokens: Generated tokens as its own span says; None when it does not.
        span_id: Span that it is; None for one from a file.
        piece: Which piece of its span it is and of how many, where the span encloses other steps; None for a whole one.
    """

    step_id: int
    kind: Kind
    start_unix_ns: int
    end_unix_ns: int
    name: str | None = None
    model: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    span_id: str | None = None
    piece: tuple[int, int] | None = None


def read_step_file(path: Path) -> list[TrajectoryStep]:
    """Read a step file.

    Args:
        path: The file; blank lines and unknown fields are passed over, and the order is free.

    Returns:
        Its steps in the order of the file.

    Raises:
        UsageError: It can't be read or a line is wrong; the message begins with `file:line:`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not readable ({error}); expected a JSONL file of steps") from None
    return parse_steps(text.split("\n"), str(path))


def parse_steps(lines: Iterable[str], name: str) -> list[TrajectoryStep]:
    """Parse the lines of a step file.

    Args:
        lines: The lines.
        name: Name of the file, for messages.

    Returns:
        The steps.

    Raises:
        UsageError: A line is wrong.
    """
    first_line: dict[int, int] = {}
    steps = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        step = _parse(line, f"{name}:{number}")
        if step.step_id in first_line:
            raise UsageError(
                f"{name}:{number}: step_id {step.step_id} is also on line {first_line[step.step_id]}; give each its own"
            )
        first_line[step.step_id] = number
        steps.append(step)
    return steps


def _parse(line: str, where: str) -> TrajectoryStep:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise UsageError(f"{where}: not JSON ({error}); expected one object with {', '.join(_FIELDS)}") from None
    if not isinstance(found, dict):
        raise UsageError(f"{where}: {type(found).__name__} found; expected an object with {', '.join(_FIELDS)}")
    missing = [field for field in _FIELDS if field not in found]
    if missing:
        raise UsageError(f"{where}: no {missing[0]}; expected {', '.join(_FIELDS)}")
    kind = found["kind"]
    if kind not in _FILE_KINDS:
        raise UsageError(f"{where}: unknown kind {kind!r}; known: {', '.join(_FILE_KINDS)}")
    numbers = [_whole(found[field], field, where) for field in _FIELDS if field != "kind"]
    step_id, start_ns, end_ns = numbers
    if end_ns < start_ns:
        raise UsageError(f"{where}: step {step_id} ends {start_ns - end_ns} ns before it starts; swap its times")
    return TrajectoryStep(step_id, kind, start_ns, end_ns)


def _whole(value: Any, field: str, where: str) -> int:
    if not _is_whole(value):
        raise UsageError(f"{where}: {field} is {value!r}; expected an integer of 0 to 2^63 - 1")
    return value


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
