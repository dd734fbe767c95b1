"""Where in the bytes of a step's span its numbers are, so that those of all steps like it can be cut out at once.

Source: protobuf encoding (varints, fixed64, length-delimited fields); opentelemetry-proto 1.10, `trace.proto` and
`common.proto`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

EQUAL: Final = 0xFF
"""All bits of this byte are the same in steps of one layout."""
GOES_ON: Final = 0x80
"""Of this byte the bit is that says whether another byte of a number follows."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_TRACE_ID, _SPAN_ID, _NAME, _START, _END, _ATTRIBUTE = 1, 2, 5, 7, 8, 9
_INT_VALUE: Final = 0x18
"""How an `AnyValue` that holds an integer begins: field 3, a varint."""
_LONGEST_VARINT: Final = 10


class UnfitError(Exception):
    """A span that has to be read for itself."""


@dataclass(slots=True)
class Layout:
    """Where what is in a step's bytes.

    Attributes:
        mask: Of each byte the bits that steps of this layout have in common.
        places: Offset of each of the trace id (16 bytes), the span id (8), the start and the end (fixed64).
        integers: Offset and size of varints by index of their column.
        same: Values that all share by index of their column.
    """

    mask: bytearray
    places: dict[int, int] = field(default_factory=dict)
    integers: dict[int, tuple[int, int]] = field(default_factory=dict)
    same: dict[int, Any] = field(default_factory=dict)

    @property
    def trace_id(self) -> int:
        """Offset of 16 bytes."""
        return self.places[_TRACE_ID]

    @property
    def span_id(self) -> int:
        """Offset of 8 bytes."""
        return self.places[_SPAN_ID]

    @property
    def times_ns(self) -> tuple[int, int]:
        """Offsets of the start and the end, 8 bytes each."""
        return self.places[_START], self.places[_END]


def layout_of(
    span: bytes, name: bytes, int_columns: Mapping[bytes, int], read: Callable[[bytes], tuple[int, Any] | None]
) -> Layout:
    """Find the layout of a step.

    Args:
        span: A span as protobuf encodes it.
        name: The name that it must have.
        int_columns: Indexes of columns of integers by how their attributes begin.
        read: Reads one attribute that all steps of the layout share; None when it has no column.

    Returns:
        The layout.

    Raises:
        UnfitError: It has another name, lacks an id or a time, says something twice, or has an attribute without a
            column.
    """
    layout = Layout(bytearray([EQUAL]) * len(span))
    position = 0
    try:
        while position < len(span):
            tag, position = _varint(span, position)
            number, kind = tag >> 3, tag & 7
            size, position = _size(span, position, kind)
            if position + size > len(span):
                raise UnfitError
            _field(layout, span, (number, kind, position, size), name, int_columns, read)
            position += size
    except IndexError:
        raise UnfitError from None
    if layout.places.keys() != {_TRACE_ID, _SPAN_ID, _NAME, _START, _END}:
        raise UnfitError
    return layout


def _field(
    layout: Layout,
    span: bytes,
    found: tuple[int, int, int, int],
    name: bytes,
    int_columns: Mapping[bytes, int],
    read: Callable[[bytes], tuple[int, Any] | None],
) -> None:
    number, kind, position, size = found
    if number == _ATTRIBUTE and kind == _BYTES:
        _attribute(layout, span, (position, size), int_columns, read)
        return
    if number == _NAME:
        if kind != _BYTES or span[position : position + size] != name or number in layout.places:
            raise UnfitError
        layout.places[number] = position
        return
    expected = _PLACES.get(number)
    if expected is None:
        if kind in {_BYTES, _FIXED32}:
            layout.mask[position : position + size] = bytes(size)  # a parent, links, flags: a step's row has none
        return
    if (kind, size) != expected or number in layout.places:
        raise UnfitError
    layout.places[number] = position
    layout.mask[position : position + size] = bytes(size)


_PLACES: Final = {
    _TRACE_ID: (_BYTES, 16),
    _SPAN_ID: (_BYTES, 8),
    _START: (_FIXED64, 8),
    _END: (_FIXED64, 8),
}
"""Wire type and size of the fields that differ between steps and that each has once, as it has a name."""


def _attribute(
    layout: Layout,
    span: bytes,
    where: tuple[int, int],
    int_columns: Mapping[bytes, int],
    read: Callable[[bytes], tuple[int, Any] | None],
) -> None:
    position, size = where
    pair = span[position : position + size]
    prefix = pair[: pair[1] + 3] if len(pair) > 1 else pair
    index = int_columns.get(prefix)
    number = pair[len(prefix) + 2 :]
    if index is None or pair[len(prefix) : len(prefix) + 2] != bytes((len(number) + 1, _INT_VALUE)):
        column = read(pair)
        if column is None or column[0] in layout.integers or column[0] in layout.same:
            raise UnfitError  # of two attributes with one key the last one counts
        layout.same[column[0]] = column[1]
        return
    if index in layout.integers or index in layout.same:
        raise UnfitError
    end, begin = position + size, position + size - len(number)
    if len(number) > _LONGEST_VARINT or _varint(span, begin)[1] != end:
        raise UnfitError
    layout.mask[begin:end] = bytes([GOES_ON]) * len(number)
    layout.integers[index] = (begin, len(number))


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and where it ends."""
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < GOES_ON:
            return number, position
        shift += 7


def _size(data: bytes, position: int, kind: int) -> tuple[int, int]:
    """How many bytes a field's value has, and where it begins."""
    if kind == _BYTES:
        return _varint(data, position)
    if kind == _VARINT:
        return _varint(data, position)[1] - position, position
    sizes = {_FIXED64: 8, _FIXED32: 4}
    if kind not in sizes:
        raise UnfitError
    return sizes[kind], position
