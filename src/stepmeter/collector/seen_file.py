"""Which requests were seen, over restarts: hashes of those whose journal is gone, the latest ones.

record = hash of the request (16 bytes) · items of it that were rejected (u32)
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from stepmeter.collector.seen import REMEMBERED, Receipt
from stepmeter.store.durable import replacing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_RECORD: Final = struct.Struct("<16sI")
_NAME: Final = "seen"
_MAX_BYTES: Final = 2 * REMEMBERED * _RECORD.size
_REASON: Final = "they were rejected when the request came first"


class SeenFile:
    """The hashes of one collector's slot; used by one thread.

    Args:
        directory: The slot's directory.

    Raises:
        OSError: It can't be written.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / _NAME
        self._descriptor = self._open()

    def read(self) -> Iterator[tuple[bytes, Receipt]]:
        """Read what was seen; a record that a crash cut short is none.

        Yields:
            Hashes with what became of their requests, oldest first.
        """
        data = self._path.read_bytes()
        whole = memoryview(data)[: len(data) - len(data) % _RECORD.size][-REMEMBERED * _RECORD.size :]
        for digest, rejected in _RECORD.iter_unpack(whole):
            yield digest, Receipt(rejected, _REASON if rejected else "")

    def append(self, seen: Mapping[bytes, Receipt]) -> None:
        """Note requests, durably.

        Args:
            seen: Hashes with what became of their requests.

        Raises:
            OSError: They can't be written.
        """
        size = os.fstat(self._descriptor).st_size
        if size > _MAX_BYTES:
            size = self._keep_latest()
        records = b"".join(_RECORD.pack(digest, receipt.rejected) for digest, receipt in seen.items())
        start = size - size % _RECORD.size
        written = 0
        while written < len(records):
            written += os.pwrite(self._descriptor, memoryview(records)[written:], start + written)
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        with suppress(OSError):
            os.close(self._descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def _keep_latest(self) -> int:
        data = self._path.read_bytes()
        latest = data[: len(data) - len(data) % _RECORD.size][-REMEMBERED * _RECORD.size :]
        with replacing(self._path) as partial:
            partial.write_bytes(latest)
        self.close()
        self._descriptor = self._open()
        return len(latest)
