"""Bodies of HTTP requests: with a length or in chunks, plain or gzip, and never more than the limit."""

from __future__ import annotations

import zlib
from http import HTTPStatus
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from email.message import Message
    from io import BufferedIOBase

_GZIP_WINDOW_BITS: Final = 31
_MAX_LINE_BYTES: Final = 4096


class BodyError(Exception):
    """A body that can't be taken.

    Args:
        status: The HTTP status that says so.
        message: What is wrong.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def read_body(headers: Message, stream: BinaryIO | BufferedIOBase, max_bytes: int) -> bytes:
    """Read and decompress the body of a request.

    Args:
        headers: The request's headers.
        stream: Where the body is read from.
        max_bytes: Limit of the body, before and after decompression.

    Returns:
        The body.

    Raises:
        BodyError: It is too large, cut short or not what the headers say.
    """
    if headers.get("Transfer-Encoding", "identity").lower() == "chunked":
        body = _read_chunks(stream, max_bytes)
    else:
        body = _read_length(headers, stream, max_bytes)
    compression = headers.get("Content-Encoding", "identity").strip().lower()
    if compression == "gzip":
        return _gunzip(body, max_bytes)
    if compression not in {"identity", ""}:
        raise BodyError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f'content encoding "{compression}"; expected gzip or none')
    return body


def _read_length(headers: Message, stream: BinaryIO | BufferedIOBase, max_bytes: int) -> bytes:
    length = headers.get("Content-Length", "")
    if not length.isdecimal():
        raise BodyError(HTTPStatus.BAD_REQUEST, f'content length "{length}"; expected a number of bytes')
    return _read_exactly(stream, int(length), max_bytes)


def _read_chunks(stream: BinaryIO | BufferedIOBase, max_bytes: int) -> bytes:
    chunks: list[bytes] = []
    left_bytes = max_bytes
    while True:
        line = stream.readline(_MAX_LINE_BYTES).partition(b";")[0].strip()
        try:
            size = int(line, 16)
        except ValueError:
            raise BodyError(HTTPStatus.BAD_REQUEST, "a chunk without its size") from None
        if size == 0:
            break
        chunks.append(_read_exactly(stream, size, left_bytes))
        left_bytes -= size
        stream.readline(_MAX_LINE_BYTES)
    while stream.readline(_MAX_LINE_BYTES).strip():  # trailers
        pass
    return b"".join(chunks)


def _read_exactly(stream: BinaryIO | BufferedIOBase, size: int, max_bytes: int) -> bytes:
    if size < 0:
        raise BodyError(HTTPStatus.BAD_REQUEST, "a body of negative size")
    if size > max_bytes:
        raise _too_large(max_bytes)
    data = stream.read(size)
    if len(data) < size:
        raise BodyError(HTTPStatus.BAD_REQUEST, f"body ends after {len(data)} of {size} bytes")
    return data


def _gunzip(body: bytes, max_bytes: int) -> bytes:
    plain: list[bytes] = []
    left_bytes = max_bytes
    while body:
        decompressor = zlib.decompressobj(_GZIP_WINDOW_BITS)
        try:
            part = decompressor.decompress(body, left_bytes + 1)
        except zlib.error as error:
            raise BodyError(HTTPStatus.BAD_REQUEST, f"not gzip: {error}") from None
        if len(part) > left_bytes:
            raise _too_large(max_bytes)
        if not decompressor.eof:
            raise BodyError(HTTPStatus.BAD_REQUEST, "gzip ends too early")
        plain.append(part)
        left_bytes -= len(part)
        body = decompressor.unused_data
    return b"".join(plain)


def _too_large(max_bytes: int) -> BodyError:
    return BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"body of more than {max_bytes} bytes, the limit")
