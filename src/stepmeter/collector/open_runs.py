"""The runs that this collector writes: found or made when telemetry for them comes, and held against being sealed.

While a collector may still write to a run it holds a shared lock in it; sealing needs that lock alone. So a request
is either admitted before a run is sealed, and its rows are in what is sealed, or refused.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepmeter.collector.verdicts import UnavailableError
from stepmeter.errors import StoreVersionError
from stepmeter.store.identity import RUN_FILE, read_identity
from stepmeter.store.segments import WRITERS_FILE, claim_run

if TYPE_CHECKING:
    from pathlib import Path

    from stepmeter.collector.decode import RunKey

_IDLE_S: Final = 60.0
"""A run without telemetry for this long may be sealed, although the collector still runs."""


@dataclass(slots=True)
class _Open:
    path: Path
    lock: int
    used_s: float


class OpenRuns:
    """The runs of one collector; may be used by several threads.

    Args:
        directory: Where runs live.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._open: dict[RunKey, _Open] = {}
        self._refused: dict[RunKey, str] = {}

    def admit(self, run: RunKey) -> str | None:
        """Ask whether telemetry of a run can be taken.

        Args:
            run: The run; its directory is made when there is none.

        Returns:
            None when it can; else why it never will be.

        Raises:
            UnavailableError: It can't be now.
        """
        with self._lock:
            found = self._open.get(run)
            if found is None or not (found.path / RUN_FILE).exists():
                return self._refused.get(run) or self._claim(run)
            found.used_s = time.monotonic()
            return None

    def path(self, run: RunKey) -> Path | None:
        """Where a run's rows go.

        Args:
            run: The run.

        Returns:
            Its directory; None when it takes no more rows.

        Raises:
            UnavailableError: It can't be written now.
        """
        if self.admit(run) is not None:
            return None
        with self._lock:
            return self._open[run].path

    def all(self) -> list[Path]:
        """The runs that are open.

        Returns:
            Their directories.
        """
        with self._lock:
            return [found.path for found in self._open.values()]

    def release_idle(self, idle_s: float = _IDLE_S) -> list[RunKey]:
        """Let go of runs without telemetry; to be called when nothing of theirs waits to be written.

        Args:
            idle_s: How long they had none.

        Returns:
            Those let go of.
        """
        now_s = time.monotonic()
        with self._lock:
            idle = [run for run, found in self._open.items() if now_s - found.used_s >= idle_s]
            for run in idle:
                os.close(self._open.pop(run).lock)
        return idle

    def close(self) -> None:
        """Let go of all runs."""
        self.release_idle(0.0)

    def _claim(self, run: RunKey) -> str | None:
        try:
            path = claim_run(self._directory, run.run_id, run.run_name)
            lock = os.open(path / WRITERS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                sealed = read_identity(path).sealed_ns is not None
            except BaseException:
                os.close(lock)
                raise
        except StoreVersionError as error:
            return self._refuse(run, str(error))
        except BlockingIOError:
            raise UnavailableError(f"run {run.run_id} is being sealed") from None
        except (OSError, ValueError) as error:
            raise UnavailableError(f"can't open run {run.run_id}: {error}") from None
        if sealed:
            os.close(lock)
            return self._refuse(run, f"run {run.run_id} is sealed and takes no more telemetry; use another run id")
        if previous := self._open.pop(run, None):
            os.close(previous.lock)
        self._open[run] = _Open(path, lock, time.monotonic())
        return None

    def _refuse(self, run: RunKey, reason: str) -> str:
        self._refused[run] = reason
        return reason
