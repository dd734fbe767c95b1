"""Which start of a run this is, by a counter in the run's directory."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from stepmeter.store.durable import locked, replacing

COUNTER: Final = "attempt.json"
"""File of a run directory that holds the latest attempt."""

_HELD: Final = ".attempt.lock"
_TURN: Final = ".attempt.turn"


@contextmanager
def take_part(run_dir: Path) -> Iterator[int | None]:
    """Begin the next attempt of a run, or join the one that others are in.

    Every launcher of an attempt holds a shared lock on it as long as it lives, which the kernel takes back however it
    ends. So several nodes that start together on a shared directory are in one attempt, and who comes when all have
    ended begins a new one.

    Args:
        run_dir: The run's directory.

    Yields:
        The attempt, from 0; past those of which steps or rows are there, since a launcher such as torchrun counts
        restarts of its own on top. None where the directory can't keep a counter.
    """
    held: int | None = None
    try:
        with locked(run_dir / _TURN):
            held = os.open(run_dir / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            attempt: int | None = _settle(run_dir, held)
    except OSError:
        attempt = None
    try:
        yield attempt
    finally:
        if held is not None:
            os.close(held)


def _settle(run_dir: Path, held: int) -> int:
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        attempt = _counted(run_dir)
    else:
        attempt = max(_counted(run_dir), _recorded(run_dir)) + 1
        with replacing(run_dir / COUNTER) as partial:
            partial.write_text(json.dumps({"attempt": attempt}) + "\n", encoding="utf-8")
    fcntl.flock(held, fcntl.LOCK_SH)
    return max(attempt, 0)


def _counted(run_dir: Path) -> int:
    """The latest attempt that was begun here; -1 without one."""
    return _attempt_in(run_dir / COUNTER)


def _recorded(run_dir: Path) -> int:
    """The latest attempt of which steps or rows are there; -1 without one."""
    from stepmeter.store.watermark import read_watermarks

    of_steps = [mark.attempt for mark in read_watermarks(run_dir) or ()]
    return max([*of_steps, *map(_attempt_in, (run_dir / "cursors").glob("*.json"))], default=-1)


def _attempt_in(file: Path) -> int:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return int(content["attempt"])
    except (OSError, ValueError, KeyError, TypeError):
        return -1
