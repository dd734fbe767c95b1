"""Files and directories that are there whole or not at all, also after a crash of the machine."""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTIAL = ".partial"
"""Ending of a file that is being written; no reader looks at it."""


def sync(path: Path) -> None:
    """Make a file's content, or a directory's entries, survive a crash of the machine.

    Args:
        path: The file or directory.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path, *, in_directory: bool = True) -> Iterator[Path]:
    """Write a file beside its place and move it there, durably, when the block has ended well.

    Args:
        path: Where the file is to be; its directory is made.
        in_directory: Whether to make the directory's entry durable too; without it the file may be missing after a
            crash of the machine, but is never half there.

    Yields:
        Where to write it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}{PARTIAL}")
    try:
        yield partial
        sync(partial)
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if in_directory:
        sync(path.parent)


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold a lock between processes; waits for it.

    Args:
        file: The lock's file, made when it is not there.
    """
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def try_locked(file: Path) -> Iterator[bool]:
    """Hold a lock between processes if nobody else does.

    Args:
        file: The lock's file, made when it is not there.

    Yields:
        Whether it is held.
    """
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
