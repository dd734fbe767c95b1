"""The journal: requests as they came, checksummed and synced to disk before they are acknowledged.

A file holds the requests of one segment and has its number. It begins with a record that says which run
takes telemetry that names none, and ends wherever a crash left it: the first record that is cut short or
whose checksum is wrong is the end. Files are used again, see `spares`: the checksum begins with the file's number, so
that what an earlier use left behind never passes for a request.

    record = length of the body (u32) · CRC-32 of the rest (u32) · signal (u8) · encoding (u8) · body
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepmeter.collector.decode import RunKey
from stepmeter.collector.otlp import SIGNALS, Encoding, Signal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from stepmeter.collector.spares import Spares

_HEAD: Final = struct.Struct("<IIBB")
_HEADER_CODE: Final = 0
_SUFFIX: Final = ".journal"
_MAX_SEED: Final = 2**32 - 1
_IOV_MAX: Final = 1024
"""Buffers of one write, at most; even, for a record has two."""
_SIGNALS: Final = {signal.code: signal for signal in SIGNALS}


@dataclass(frozen=True, slots=True)
class Record:
    """One request.

    Attributes:
        signal: What it holds.
        encoding: How its body is written.
        body: Its bytes, decompressed.
    """

    signal: Signal
    encoding: Encoding
    body: bytes


class JournalFile:
    """One file of the journal, open for appending by one thread at a time.

    Attributes:
        path: Where it is.
        number: Its number, which is that of the segments it becomes.

    Args:
        directory: The journal's directory.
        number: Its number, which none had before.
        default_run: The run of telemetry that names none.
        spares: Where it may find a file to write over; None makes a new one.

    Raises:
        OSError: It can't be made durable.
    """

    def __init__(self, directory: Path, number: int, default_run: RunKey, spares: Spares | None = None) -> None:
        self.number = number
        self.path = directory / f"{number:012d}{_SUFFIX}"
        used = spares is not None and spares.take(self.path)
        new = 0 if used else os.O_CREAT | os.O_EXCL
        self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC | new, 0o666)
        self._size = 0
        try:
            header = json.dumps({"run_id": default_run.run_id, "run_name": default_run.run_name}).encode()
            self._append([_head(_HEADER_CODE, 0, header, number), header])
            sync_directory(directory)
        except OSError:
            self.close()
            self.path.unlink(missing_ok=True)
            raise

    def append(self, records: Sequence[Record]) -> None:
        """Write records and sync them with one call; they are durable when this returns.

        Args:
            records: The requests.

        Raises:
            OSError: They could not be written; the file is as it was before.
        """
        parts: list[bytes] = []
        for record in records:
            body = record.body  # some hundred kB: written from where it is
            parts += (_head(record.signal.code, record.encoding.value, body, self.number), body)
        self._append(parts)

    def close(self, *, trim: bool = False) -> None:
        """Close the file; a second time does nothing.

        Args:
            trim: Whether to cut off what an earlier use left behind its end.
        """
        if self._descriptor >= 0:
            if trim:
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._size)
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, parts: Sequence[bytes]) -> None:
        end = self._size
        try:
            for first in range(0, len(parts), _IOV_MAX):
                end = _write_all(self._descriptor, parts[first : first + _IOV_MAX], end)
            os.fdatasync(self._descriptor)
        except OSError:
            # what was written of it must not come back in a replay; the next one is written over it in any case
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size = end


def _write_all(descriptor: int, parts: Sequence[bytes], offset: int) -> int:
    """Write buffers one behind the other, however little a call takes; gives the end."""
    written = os.pwritev(descriptor, parts, offset)
    end = offset + sum(map(len, parts))
    if offset + written < end:
        rest = memoryview(b"".join(parts))[written:]
        while rest:
            rest = rest[os.pwrite(descriptor, rest, end - len(rest)) :]
    return end


def journal_files(directory: Path) -> list[tuple[int, Path]]:
    """List the files of a journal.

    Args:
        directory: The journal's directory.

    Returns:
        Numbers and paths, oldest first.
    """
    return sorted((int(path.stem), path) for path in directory.glob(f"*{_SUFFIX}") if path.stem.isdecimal())


def read_journal(path: Path) -> tuple[RunKey | None, list[Record]]:
    """Read a file of the journal up to where it is whole.

    Args:
        path: The file.

    Returns:
        The run of telemetry that names none, None when not even that was written; and the requests.
    """
    data = path.read_bytes()
    seed = _seed(path, data)
    default_run, records, offset = None, [], 0
    while offset + _HEAD.size <= len(data):
        length, checksum, code, encoding = _HEAD.unpack_from(data, offset)
        end = offset + _HEAD.size + length
        # the checksum covers everything behind itself, which begins at the signal's byte
        if end > len(data) or zlib.crc32(data[offset + 8 : end], seed) != checksum:
            break
        body = data[offset + _HEAD.size : end]
        if code == _HEADER_CODE:
            default_run = RunKey(**json.loads(body))
        else:
            records.append(Record(_SIGNALS[code], Encoding(encoding), body))
        offset = end
    return default_run, records


def sync_directory(directory: Path) -> None:
    """Make the entries of a directory survive a crash of the machine.

    Args:
        directory: The directory.
    """
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _head(code: int, encoding: int, body: bytes, number: int) -> bytes:
    checksum = zlib.crc32(body, zlib.crc32(bytes((code, encoding)), number & _MAX_SEED))
    return _HEAD.pack(len(body), checksum, code, encoding)


def _seed(path: Path, data: bytes) -> int:
    """What checksums begin with: the file's number; 0 in files that an older version left, which used none twice."""
    number = int(path.stem) & _MAX_SEED if path.stem.isdecimal() else 0
    if len(data) < _HEAD.size:
        return number
    length, checksum, _, _ = _HEAD.unpack_from(data)
    first = data[8 : _HEAD.size + length]
    return 0 if zlib.crc32(first, number) != checksum and zlib.crc32(first) == checksum else number
