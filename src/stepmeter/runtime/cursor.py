"""How far each writer of a run has come: one small file each, so that a resumed run goes on one past it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.errors import UsageError

if TYPE_CHECKING:
    from stepmeter.runtime.opening import Place

FOLDER: Final = "cursors"
_RESUME: Final = ("allow", "must", "never")


def run_id_of(directory: Path) -> str | None:
    """The identity of a run that was begun before.

    Args:
        directory: A run directory, or where one may be.

    Returns:
        The identity; None when nothing was begun there.
    """
    for file in (*sorted((directory / FOLDER).glob("*.json")), directory / "run.json"):
        run_id = _read(file).get("run_id")
        if isinstance(run_id, str):
            return run_id
    return None


class Cursor:
    """The cursor of one writer; holds a lock on it, so that no other process writes the same stream.

    Attributes:
        attempt: Which start of the run this is, from 0.
        first_step: One past the highest step so far; 0 for a new run.
    """

    def __init__(self, path: Path, run_id: str, attempt: int, first_step: int, lock: int) -> None:
        self._path = path
        self._run_id = run_id
        self._lock: int | None = lock
        self._next_step = first_step
        self.attempt = attempt
        self.first_step = first_step
        self._write()

    @classmethod
    def open(cls, place: Place, resume: str) -> Cursor:
        """Take the cursor of a writer.

        Args:
            place: The run and its writer.
            resume: `allow`, `must` or `never`.

        Returns:
            The cursor, advanced to the attempt that begins.

        Raises:
            UsageError: Another process writes this stream, the run is there and must not be or the other way round,
                or the directory can't be written.
        """
        if resume not in _RESUME:
            raise UsageError(f"resume={resume!r}; expected one of {', '.join(_RESUME)}")
        path = place.directory / FOLDER / f"{place.writer}.json"
        before = _read(path)
        if resume == "never" and before:
            raise UsageError(f"{place.directory} has this run already; choose another name or resume='allow'")
        if resume == "must" and not before:
            raise UsageError(f"{place.directory} has no run to resume; check name and dir, or use resume='allow'")
        lock = _take_lock(path.with_suffix(".lock"), place)
        attempt = place.launcher_attempt
        if before:
            attempt = max(attempt, int(before.get("attempt", 0)) + 1)
        return cls(path, place.run_id, attempt, int(before.get("next_step", 0)), lock)

    def reached(self, step: int) -> None:
        """Keep how far the writer has come; called by the drain.

        Args:
            step: Step of the newest row that has been handed on.
        """
        if step >= self._next_step:
            self._next_step = step + 1
            self._write()

    def close(self, next_step: int) -> None:
        """Keep the last step and let go of the stream.

        Args:
            next_step: One past the last committed step.
        """
        if self._lock is None:
            return
        self._next_step = max(self._next_step, next_step)
        self._write()
        os.close(self._lock)
        self._lock = None

    def _write(self) -> None:
        content = {"run_id": self._run_id, "attempt": self.attempt, "next_step": self._next_step}
        beside = self._path.with_suffix(".tmp")
        beside.write_text(json.dumps(content) + "\n", encoding="utf-8")
        beside.replace(self._path)


def _take_lock(path: Path, place: Place) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise UsageError(f"{path.parent} can't be written ({error.strerror}); choose another dir") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise UsageError(
            f"stream {place.stream or 'default'!r} of run {place.name!r} is written by another process; "
            "give each process a stream of its own"
        ) from None
    return descriptor


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
