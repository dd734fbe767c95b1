"""What a program logs, as values that OpenTelemetry and JSON can carry."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import os
import uuid
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePath
from typing import Any, Final

Value = Any
"""None, str, bool, int, float, or a list or a string-keyed dict of values; non-finite floats stay floats."""

REPR_LIMIT: Final = 512
"""Characters that are kept of the `repr` of what can't be carried."""

_MAX_DEPTH: Final = 8
_MAX_ARRAY: Final = 4096
_INT64: Final = 1 << 63
_PLAIN: Final = frozenset({str, bool, float, type(None)})


class Uncarriable(TypeError):  # noqa: N818 - a signal inside this module's contract, never shown
    """A value that has no form of its own on the wire."""


def encode(value: Any) -> Value:
    """Write a value in the few types that the wire has.

    Args:
        value: A plain value; a NumPy or torch scalar or array; a path, date, time, enum, UUID, set, mapping, sequence,
            bytes or dataclass of such.

    Returns:
        Plain values; arrays as nested lists.

    Raises:
        Uncarriable: It is none of these, too deep or too long; whoever calls falls back to `shortened`.
    """
    return _encode(value, 0)


def shortened(value: Any) -> str:
    """What is kept of a value that can't be carried.

    Args:
        value: Any object, whose `repr` may itself fail.

    Returns:
        The first characters of its `repr`.
    """
    try:
        text = repr(value)
    except Exception:  # a user's __repr__
        text = f"<{type(value).__name__}>"
    return text if len(text) <= REPR_LIMIT else text[: REPR_LIMIT - 1] + "…"


def encode_all(values: Mapping[Any, Any], on_failure: Callable[[str, Exception], None]) -> dict[str, Value]:
    """Encode a mapping, each value on its own, so that a bad one leaves its neighbours alone.

    Args:
        values: Names and values.
        on_failure: Told the name and the error of each value that had to be shortened.

    Returns:
        Encoded values by name.
    """
    encoded: dict[str, Value] = {}
    for key, value in values.items():
        name = key if type(key) is str else str(key)
        if type(value) in _PLAIN:
            encoded[name] = value
            continue
        try:
            encoded[name] = encode(value)
        except Exception as error:  # whatever a foreign object's methods raise
            encoded[name] = shortened(value)
            on_failure(name, error)
    return encoded


def finite(value: Value) -> Value:
    """Replace non-finite floats by their names, which standard JSON can carry.

    Args:
        value: An encoded value.

    Returns:
        The same with `"NaN"`, `"Infinity"` and `"-Infinity"`.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, list):
        return [finite(item) for item in value]
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return value


def size_bytes(value: Value) -> int:
    """About how much memory and wire a value takes.

    Args:
        value: An encoded value.

    Returns:
        Bytes; the length of texts, 16 for each other leaf.
    """
    if isinstance(value, str):
        return 16 + len(value)
    if isinstance(value, list):
        return 16 + sum(map(size_bytes, value))
    if isinstance(value, dict):
        return 16 + sum(len(key) + size_bytes(item) for key, item in value.items())
    return 16


def plain_size_bytes(values: Mapping[Any, Any]) -> int | None:
    """The same of a mapping that needs no encoding, quicker.

    Args:
        values: Values by name.

    Returns:
        Bytes; None when a name is no text or a value has to be encoded.
    """
    size = 16
    for key, value in values.items():
        kind = type(value)
        if type(key) is not str:
            return None
        if kind is str:
            size += len(value)
        elif kind not in _PLAIN and (kind is not int or not -_INT64 <= value < _INT64):
            return None
        size += 16 + len(key)
    return size


def _encode(value: Any, depth: int) -> Value:
    if type(value) in _PLAIN:
        return value
    if depth > _MAX_DEPTH:
        raise Uncarriable("nested too deep")
    if isinstance(value, enum.Enum):
        return _encode(value.value, depth + 1)
    if isinstance(value, bool | int):
        return _whole(int(value)) if not isinstance(value, bool) else bool(value)
    if isinstance(value, float | str):
        return float(value) if isinstance(value, float) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _encode(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | AbstractSet):
        return _list(value, depth)
    return _object(value, depth)


def _whole(value: int) -> int | str:
    return value if -_INT64 <= value < _INT64 else str(value)


def _list(value: Any, depth: int) -> list[Value]:
    if len(value) > _MAX_ARRAY:
        raise Uncarriable(f"{len(value)} items")
    items = sorted(value, key=repr) if isinstance(value, AbstractSet) else value
    return [_encode(item, depth + 1) for item in items]


def _object(value: Any, depth: int) -> Value:
    if isinstance(value, PurePath | uuid.UUID):
        return str(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _encode(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _array(value, depth)


def _array(value: Any, depth: int) -> Value:
    """NumPy and torch, known by their methods, so that neither is imported."""
    size = getattr(value, "numel", None) or getattr(value, "size", None)
    to_list, to_item = getattr(value, "tolist", None), getattr(value, "item", None)
    if not callable(to_list) or not callable(to_item):
        raise Uncarriable(type(value).__name__)
    count = size() if callable(size) else size
    if isinstance(count, int) and count > _MAX_ARRAY:
        raise Uncarriable(f"an array of {count} elements")
    return _encode(to_list(), depth + 1)
