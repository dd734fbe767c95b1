"""How a run is read: open it, take one snapshot, and ask everything of that.

A live view reads the tail only:

    snapshot = reader.snapshot()
    marks = snapshot.watermark()                    # one RankWatermark for each attempt and rank; no step is read
    last = min(mark.last_step for mark in marks if mark.attempt == latest)
    rows = snapshot.tail(last - 300).rows(sql)      # the same moment; segments with older steps only are left out
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.errors import RunNotFoundError, StoreError
from stepmeter.store.find import find_run
from stepmeter.store.identity import RUN_FILE, read_identity, require_known_version
from stepmeter.store.opened import OpenRun
from stepmeter.store.snapshot import Snapshot

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from stepmeter.store.connection import Spill
    from stepmeter.store.identity import RunIdentity

__all__ = ["RunReader", "find_run", "open_run"]


def open_run(path: Path, spill: Spill | None = None) -> RunReader:
    """Open a run for reading; it may be written at the same time.

    Args:
        path: The run directory.
        spill: How much memory a statement may take, and where it goes beyond; DuckDB's own choice when None.

    Returns:
        A reader, which is a context manager.

    Raises:
        RunNotFoundError: There is no run at this path.
        StoreError: Its identity can't be read.
        StoreVersionError: A newer stepmeter wrote it.
    """
    try:
        identity = read_identity(path)
    except (FileNotFoundError, NotADirectoryError):
        raise RunNotFoundError(f'"{path}" is not a run: it has no {RUN_FILE}; name a directory that has one') from None
    except (ValueError, OSError) as error:
        raise StoreError(f"{path / RUN_FILE}: not readable ({error}); restore it or collect the run again") from None
    require_known_version(path, identity)
    return RunReader(path, identity, spill)


class RunReader:
    """A run that is open for reading; may be used by several threads.

    Attributes:
        path: The run directory.
        run_id: Identity of the run.
        run_name: Name for people, or None.
    """

    def __init__(self, path: Path, identity: RunIdentity, spill: Spill | None = None) -> None:
        self.path = path
        self.run_id = identity.run_id
        self.run_name = identity.run_name
        self._run = OpenRun(path, sealed=identity.sealed_ns is not None, spill=spill)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the run; a second time does nothing."""
        self._run.close()

    def snapshot(self) -> Snapshot:
        """List the run's segments, once.

        Returns:
            A snapshot, whose statements all see exactly these segments.

        Raises:
            StoreError: The run has lost its data.
        """
        return Snapshot(self._run, self._run.listing())
