"""A collector's identity: `<host>-<slot>`, held by a lock that ends with the process.

A slot is taken over after a crash, with the journal that was left in it, and never shared by two that live.
"""

from __future__ import annotations

import fcntl
import glob
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepmeter.collector.journal import journal_files, read_journal
from stepmeter.store.durable import try_locked
from stepmeter.store.files import DATA, list_segments
from stepmeter.store.identity import list_runs, safe_name

if TYPE_CHECKING:
    from pathlib import Path

_MAX_SLOTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Slot:
    """A collector's place in a directory of runs.

    Attributes:
        collector: The collector's id.
        journal_dir: Where its journal lives.
        first_number: The least number that no segment of this collector has yet.
        lock: Descriptor that holds the lock.
    """

    collector: str
    journal_dir: Path
    first_number: int
    lock: int

    def release(self) -> None:
        """Let another collector take the slot."""
        os.close(self.lock)


def take_slot(directory: Path, only: int | None = None) -> Slot:
    """Take the first free slot of this host.

    Args:
        directory: The directory of runs; made when it does not exist.
        only: Number of the slot to take; None for the first free one.

    Returns:
        The slot, held until the process ends.

    Raises:
        OSError: The directory can't be written, or every slot is taken.
    """
    for number in range(_MAX_SLOTS) if only is None else (only,):
        collector = f"{_host()}-{number}"
        journal_dir = directory / ".collector" / collector
        journal_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(journal_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return Slot(collector, journal_dir, _first_number(directory, journal_dir, collector), lock)
    raise OSError(f"{_MAX_SLOTS if only is None else 'other'} collectors already write to it")


def slots_with_left_overs(directory: Path) -> list[int]:
    """The slots of this host whose collector is gone and left requests in its journal.

    Args:
        directory: The directory of runs.

    Returns:
        Their numbers.
    """
    found = []
    prefix = f"{_host()}-"
    for journal_dir in sorted((directory / ".collector").glob(f"{glob.escape(prefix)}*")):
        number = journal_dir.name.removeprefix(prefix)
        if number.isdecimal() and any(map(_has_requests, journal_dir.glob("*.journal"))):
            with try_locked(journal_dir / "lock") as free:
                if free:
                    found.append(int(number))
    return found


def _has_requests(journal: Path) -> bool:
    try:
        return bool(read_journal(journal)[1])
    except (ValueError, KeyError, TypeError):
        return True  # taking the slot over keeps it aside and says so


def _host() -> str:
    return safe_name(socket.gethostname())


def _first_number(directory: Path, journal_dir: Path, collector: str) -> int:
    """The newest journal file is never removed, so that its number tells how far numbers have come."""
    files = journal_files(journal_dir)
    if files:
        return files[-1][0] + 1
    numbers = (
        segment.last
        for run, _ in list_runs(directory)
        if (run / DATA).is_dir()
        for segments in list_segments(run).values()
        for segment in segments
        if segment.collector == collector
    )
    return 1 + max(numbers, default=0)
