"""One sampler a device and run: whoever holds the file's lock; the kernel frees it when its holder dies."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path


class DeviceLock:
    """A lock of one run on one device, between the processes of a host.

    Args:
        run_id: The run.
        uuid: The device.
        directory: Where the file is; the system's directory for temporary files when None.
    """

    def __init__(self, run_id: str, uuid: str, directory: str | None = None) -> None:
        name = hashlib.sha256(f"{run_id}/{uuid}".encode()).hexdigest()[:16]
        self._path = Path(directory or tempfile.gettempdir()) / f"stepmeter-{os.getuid()}-{name}.lock"
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Try to take the lock; does not wait.

        Returns:
            Whether it is ours. Where no lock file can be made it is: two readers are better than none.
        """
        if self._descriptor is not None:
            return True
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    def release(self) -> None:
        """Give the lock back; harmless when it is not ours. The file stays, since others may wait on it."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)  # closing would not do while a forked child has it open too
            os.close(self._descriptor)
            self._descriptor = None
