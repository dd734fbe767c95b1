"""Requests that no backend took, in a file that `stepmeter ingest` reads: length (u32, big endian) and request.

Bytes as they were to be sent cost nothing to keep; JSON would have to be made of them while a program waits to end.

Source: OpenTelemetry Collector, `exporter/fileexporter`, format `proto`.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stepmeter.conventions import environment

_LENGTH: Final = struct.Struct(">I")
_FOLDER: Final = "otlp"


class KeptRequests:
    """Appends requests to a file, which is made when the first one comes.

    Args:
        path: The file.

    Attributes:
        path: The file.
        items: Spans in what was kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.items = 0
        self._descriptor: int | None = None

    def keep(self, request: bytes, items: int) -> bool:
        """Append a request.

        Args:
            request: The request's bytes.
            items: How many spans it holds.

        Returns:
            Whether it is there.
        """
        try:
            if self._descriptor is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            rest = _LENGTH.pack(len(request)) + request
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            return False
        self.items += items
        return True


def kept_requests(environ: Mapping[str, str], run_id: str, rank: int, run_dir: Path | None) -> KeptRequests | None:
    """Where this process keeps what no backend took.

    Args:
        environ: The environment.
        run_id: The run.
        rank: The process's rank.
        run_dir: The run's directory where the program opened the run itself.

    Returns:
        A file in the run's directory; None where nobody said where runs are: a training in somebody's folder leaves no
        folder there unasked.
    """
    if environ.get(environment.RUN_DIR):
        run_dir = Path(environ[environment.RUN_DIR])
    elif run_dir is None and environ.get(environment.DIR):
        run_dir = Path(environ[environment.DIR]) / (environ.get(environment.RUN_NAME) or run_id)
    if run_dir is None:
        return None
    return KeptRequests(run_dir.absolute() / _FOLDER / f"kept.rank{rank}.{os.getpid()}.binpb")
