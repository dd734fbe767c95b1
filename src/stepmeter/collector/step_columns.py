"""Many steps of one process at once, column by column: their spans differ in a few numbers only.

A step read for itself costs some 20 dictionary look-ups and as many objects. Here the spans of a request are laid
below one another as bytes: where they agree, they are read once, and where they have numbers, numpy cuts these out
of all of them. Whatever does not agree, bit for bit, is left to the way of single rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from stepmeter.collector.decode import MAX_TIME_NS
from stepmeter.collector.step_layout import Layout, UnfitError, layout_of
from stepmeter.store.model import Block, Same

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Bytes = np.ndarray[Any, np.dtype[np.uint8]]
    Numbers = np.ndarray[Any, np.dtype[np.int64]]

FEWEST: Final = 48
"""Fewer steps than this are cheaper one by one."""
_MOST_LAYOUTS: Final = 32
"""Layouts that are looked for in one request: numbers of other lengths make another."""


class Steps(NamedTuple):
    """How a process's steps are to be read.

    Attributes:
        name: The name of their spans.
        template: What the resource says in place of attributes that are missing, by column.
        host: The resource's host.
        resource_id: The resource's id.
        step_index: Column of the step's number, which each has.
        int_columns: Indexes of columns of integers, that may differ, by how their attributes begin.
        read: Reads one attribute that all share; None when it has no column.
    """

    name: bytes
    template: Sequence[Any]
    host: str | None
    resource_id: str
    step_index: int
    int_columns: Mapping[bytes, int]
    read: Callable[[bytes], tuple[int, Any] | None]


@dataclass(frozen=True, slots=True)
class _Alike:
    """Steps of one layout: which of the request's they are, and their bytes below one another."""

    layout: Layout
    rows: Numbers
    matrix: Bytes

    @property
    def kind(self) -> Any:
        """Steps of one kind become one block."""
        return frozenset(self.layout.integers), frozenset(self.layout.same.items())


def take_steps(steps: Steps, spans: Sequence[bytes]) -> tuple[list[Block], list[bytes]]:
    """Turn the steps among spans into columns, as far as that pays.

    Args:
        steps: How they are to be read.
        spans: Spans of one resource and scope, as protobuf encodes them.

    Returns:
        A block for each set of attributes that enough steps have; and the spans that are left.
    """
    spans = list(spans)  # each look into a message would copy a span
    found, left = _among(steps.name, spans)
    if len(found) < FEWEST:
        return [], spans
    by_kind: dict[Any, list[_Alike]] = {}
    unlike = set(range(len(found)))
    for alike in _sorted_out(steps, found):
        by_kind.setdefault(alike.kind, []).append(alike)
    blocks = []
    for groups in by_kind.values():
        rows = np.concatenate([group.rows for group in groups])
        if len(rows) >= FEWEST:
            unlike.difference_update(rows.tolist())
            blocks.append(_block(steps, groups, rows))
    return blocks, left + [found[row] for row in sorted(unlike)]


def _among(name: bytes, spans: Sequence[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Which spans seem to have a name, and the others."""
    marker = b"\x2a" + bytes((len(name),)) + name
    furthest = 64 + len(marker)  # behind two ids, a parent's and a short state
    flags = [marker in span[:furthest] for span in spans]
    return list(compress(spans, flags)), [] if all(flags) else list(compress(spans, map(not_, flags)))


def _sorted_out(steps: Steps, spans: Sequence[bytes]) -> list[_Alike]:
    """Put steps of one layout together; steps that fit no layout are in none."""
    lengths = np.fromiter(map(len, spans), np.int64, len(spans))
    found: list[_Alike] = []
    looks = 0
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        matrix = np.frombuffer(b"".join([spans[row] for row in rows.tolist()]), np.uint8).reshape(len(rows), -1)
        while len(rows) and looks < _MOST_LAYOUTS:
            looks += 1
            try:
                layout = layout_of(matrix[0].tobytes(), steps.name, steps.int_columns, steps.read)
            except UnfitError:
                rows, matrix = rows[1:], matrix[1:]
                continue
            other = ((matrix ^ matrix[0]) & np.frombuffer(layout.mask, np.uint8)).any(axis=1)
            held = ~other & (np.maximum(*_times(layout, matrix)) <= MAX_TIME_NS)
            if steps.step_index in layout.integers:
                found.append(_Alike(layout, rows[held], matrix[held]))
            rows, matrix = rows[other], matrix[other]
    return found


def _block(steps: Steps, groups: Sequence[_Alike], rows: Numbers) -> Block:
    """Put steps with the same attributes together, in the order in which they came."""
    shared = groups[0].layout
    columns = list(zip(*(_decoded(group, shared.integers) for group in groups), strict=True))
    order = np.argsort(rows)
    numbers, *rest = (one[0] if len(one) == 1 else np.concatenate(one)[order] for one in columns)
    found: list[Any] = [Same(shared.same.get(index, value)) for index, value in enumerate(steps.template)]
    for index, column in zip(shared.integers, numbers.T, strict=True):
        found[index] = np.ascontiguousarray(column)
    return Block(len(rows), (*found, Same(steps.host), *rest, Same(steps.resource_id), Same(None)))


def _decoded(group: _Alike, indexes: Iterable[int]) -> tuple[Any, ...]:
    """Integers, start and end in ns, trace ids and span ids."""
    layout, matrix = group.layout, group.matrix
    times_ns = (time_ns.view(np.int64) for time_ns in _times(layout, matrix))
    ids = _hexadecimal(matrix, layout.trace_id, 16), _hexadecimal(matrix, layout.span_id, 8)
    return (_integers(group, indexes), *times_ns, *ids)


def _integers(group: _Alike, indexes: Iterable[int]) -> Numbers:
    """Decode varints: a row for each step, a column for each index."""
    places = [group.layout.integers[index] for index in indexes]
    bytes_at = np.concatenate([np.arange(begin, begin + size) for begin, size in places])
    shifts = np.concatenate([7 * np.arange(size) for _, size in places]).astype(np.uint64)
    firsts = np.cumsum([0, *(size for _, size in places[:-1])])
    digits = (group.matrix[:, bytes_at] & 0x7F).astype(np.uint64) << shifts
    numbers: np.ndarray[Any, Any] = np.add.reduceat(digits, firsts, axis=1)
    return numbers.view(np.int64)


def _times(layout: Layout, matrix: Bytes) -> tuple[Any, Any]:
    """Start and end in ns."""
    start, end = (np.ascontiguousarray(matrix[:, at : at + 8]).view("<u8")[:, 0] for at in layout.times_ns)
    return start, end


def _hexadecimal(matrix: Bytes, begin: int, size: int) -> Any:
    return np.frombuffer(matrix[:, begin : begin + size].tobytes().hex().encode(), f"S{2 * size}")
