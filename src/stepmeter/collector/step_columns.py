"""Many steps of one process at once, column by column: their spans differ in a few numbers only.

A step read for itself costs some 20 dictionary look-ups and as many objects. Here the attributes of a request's steps
are turned into columns; one that is the same in all steps is read once, and one of numbers is cut out of the joined
bytes and decoded by numpy. Whatever does not fit this pattern, byte for byte, is left to the way of single rows.

Source: protobuf encoding (varints, length-delimited fields); opentelemetry-proto 1.10, `common.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stepmeter.collector.decode import MAX_TIME_NS
from stepmeter.store.model import Block, Same

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FEWEST: Final = 48
"""Fewer steps than this are cheaper one by one."""

_INT_VALUE: Final = 0x18
"""How an `AnyValue` that holds an integer begins: field 3, a varint."""
_LONGEST_VARINT: Final = 10
_GOES_ON: Final = 0x80
"""The bit of a varint's byte that says that another follows."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The attributes of steps by index of their column.

    Attributes:
        same: Values that all share.
        varying: What follows the key of integers that differ: the length of an `AnyValue`, and the value.
    """

    same: dict[int, Any]
    varying: dict[int, list[bytes]]

    @property
    def indexes(self) -> set[int]:
        """All columns that the steps say something of."""
        return self.same.keys() | self.varying.keys()


def same_and_varying(
    spans: Sequence[Any], int_columns: Mapping[bytes, int], read: Callable[[bytes], tuple[int, Any] | None]
) -> Columns | None:
    """Turn the attributes of steps into columns.

    Args:
        spans: Steps as `wire.read_traces` gives them.
        int_columns: Indexes of columns of integers by how their attributes begin.
        read: Reads one attribute that all of the steps share; None when it has no column.

    Returns:
        The values that all share, and the bytes of the integers that differ, by index of their column; None when the
        steps have not the same attributes in the same order, or others differ.
    """
    attributes = [span.attributes[:] for span in spans]
    if len(set(map(len, attributes))) != 1:
        return None
    found = Columns({}, {})
    for column in zip(*attributes, strict=True):
        first = column[0]
        if column.count(first) == len(column):
            shared = read(first)
            if shared is None:
                return None
            found.same[shared[0]] = shared[1]
            continue
        prefix = first[: first[1] + 3] if len(first) > 1 else first
        index = int_columns.get(prefix)
        tails = _without(prefix, column) if index is not None else None
        if index is None or tails is None:
            return None
        found.varying[index] = tails
    # of two attributes with one key the last one counts
    return found if len(found.indexes) == len(attributes[0]) else None


def integers(tails: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.int64]] | None:
    """Decode integers as an attribute holds them.

    Args:
        tails: For each the length of its `AnyValue` and the value.

    Returns:
        The numbers; None when one of them is anything but one integer, written as short as its length says.
    """
    if not tails:
        return np.empty(0, np.int64)
    lengths = np.fromiter(map(len, tails), np.int64, len(tails))
    longest = int(lengths.max())
    if int(lengths.min()) < len((1, _INT_VALUE, 0)) or longest > _LONGEST_VARINT + 2:
        return None
    joined = np.frombuffer(b"".join(tails), np.uint8)
    starts = np.cumsum(lengths) - lengths
    if (joined[starts] != lengths - 1).any() or (joined[starts + 1] != _INT_VALUE).any():
        return None
    in_varint = np.ones(len(joined), bool)
    in_varint[starts] = in_varint[starts + 1] = False
    digits, lengths = joined[in_varint], lengths - 2
    starts = np.cumsum(lengths) - lengths
    ends = digits < _GOES_ON
    if not ends[starts + lengths - 1].all() or np.count_nonzero(ends) != len(tails):
        return None  # one holds less than a number, or more than one
    shifts = 7 * (np.arange(len(digits)) - np.repeat(starts, lengths))
    parts = (digits % _GOES_ON).astype(np.uint64) << shifts.astype(np.uint64)
    numbers: np.ndarray[Any, Any] = np.add.reduceat(parts, starts)
    return numbers.view(np.int64)


def steps_block(
    template: Sequence[Any], resource: tuple[str | None, str], spans: Sequence[Any], columns: Columns
) -> Block | None:
    """Put the columns of steps together.

    Args:
        template: What the resource knows of the columns that are attributes.
        resource: What the resource says for all: its host's name and its id.
        spans: The steps.
        columns: As `same_and_varying` gives them.

    Returns:
        The rows as columns; None when one of the steps needs a closer look.
    """
    numbers = integers([tail for tails in columns.varying.values() for tail in tails])
    ids = _hexadecimal([span.trace_id for span in spans], 16), _hexadecimal([span.span_id for span in spans], 8)
    times = [span.start_time_unix_nano for span in spans], [span.end_time_unix_nano for span in spans]
    if numbers is None or ids[0] is None or ids[1] is None or max(map(max, times)) > MAX_TIME_NS:
        return None
    found: list[Any] = [Same(columns.same.get(index, value)) for index, value in enumerate(template)]
    for index, values in zip(columns.varying, numbers.reshape(-1, len(spans)), strict=True):
        found[index] = values
    host, resource_id = resource
    start_ns, end_ns = (np.array(values, np.int64) for values in times)
    return Block(len(spans), (*found, Same(host), start_ns, end_ns, *ids, Same(resource_id), Same(None)))


def _without(prefix: bytes, column: Sequence[bytes]) -> list[bytes] | None:
    """What follows a prefix in each of a column's attributes; None when one begins otherwise."""
    tails = b"".join(column).split(prefix)
    del tails[0]
    shorter = [len(pair) - len(prefix) for pair in column]
    # the pieces are the attributes without the prefix just when they are as long as those would be, one by one
    return tails if list(map(len, tails)) == shorter else None


def _hexadecimal(ids: Sequence[bytes], size_bytes: int) -> np.ndarray[Any, Any] | None:
    if set(map(len, ids)) != {size_bytes}:
        return None
    return np.frombuffer(b"".join(ids).hex().encode(), f"S{2 * size_bytes}")
