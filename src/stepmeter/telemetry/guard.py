"""The one place where an exception of ours ends: swallowed, counted, said once; raised when strict."""

from __future__ import annotations

import os
import threading
from collections import Counter
from types import TracebackType

_STDERR = 2


def say(line: str) -> None:
    """Write one line to stderr, past `logging` and `sys.stderr`.

    A drain thread that logs can leave a logging lock held in a forked child (measured: up to 9 of 300 forks hung),
    so nothing of ours in the training process logs.

    Args:
        line: What to say, without a newline.
    """
    try:
        os.write(_STDERR, f"stepmeter: {line}\n".encode(errors="replace"))
    except OSError:
        return


class Guard:
    """Counts what was lost and why, and says each kind of fault once.

    Args:
        strict: Raise faults instead of swallowing them; for tests.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self._strict = strict
        self._lock = threading.Lock()
        self._losses: Counter[str] = Counter()
        self._said: set[str] = set()

    def lost(self, kind: str, count: int = 1) -> None:
        """Count a loss.

        Args:
            kind: What was lost and why, such as `step: queue full`.
            count: How many items, 0 or more.
        """
        if count:
            with self._lock:
                self._losses[kind] += count

    def losses(self) -> dict[str, int]:
        """What was lost so far.

        Returns:
            Items by kind.
        """
        with self._lock:
            return dict(self._losses)

    def fault(self, where: str, error: BaseException) -> None:
        """Take an exception of ours.

        Args:
            where: The part that failed.
            error: The exception; raised again when strict.
        """
        self.lost(f"fault: {where}")
        self.say_once(where, f"{where} failed and goes on without: {type(error).__name__}: {error}")
        if self._strict:
            raise error

    def say_once(self, key: str, line: str) -> None:
        """Say a line the first time its key comes up.

        Args:
            key: What the line is about.
            line: The line.
        """
        with self._lock:
            if key in self._said:
                return
            self._said.add(key)
        say(line)

    def over(self, where: str) -> _Block:
        """A block whose exceptions end here.

        Args:
            where: The part that the block is.

        Returns:
            A context manager that swallows `Exception`; interrupts and exits pass.
        """
        return _Block(self, where)


class _Block:
    __slots__ = ("_guard", "_where")

    def __init__(self, guard: Guard, where: str) -> None:
        self._guard = guard
        self._where = where

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self._guard.fault(self._where, error)
        return True
