"""A committed row of `log()`, as the program and the collector both know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """A committed row.

    Attributes:
        step: Its step in its stream.
        time_ns: When it was committed, Unix time in ns.
        values: Values by name; floats may be non-finite.
        added: Of a row that was committed before and was added to, what is new; None for a new row.
    """

    step: int
    time_ns: int
    values: Mapping[str, Any]
    added: Mapping[str, Any] | None = None


def number(value: Any) -> float | int | None:
    """Take a value as a number, if it is one.

    Args:
        value: An encoded value.

    Returns:
        The number; None for truth values and everything else.
    """
    return value if type(value) in {int, float} else None
