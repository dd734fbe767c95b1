"""Builds the simulated NVML, scripts it, and runs Python under it."""

import bisect
import functools
import itertools
import mmap
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).parent / "nvml" / "simnvml.c"
UUID = "GPU-00000000-0000-0000-0000-000000000000"


@functools.cache
def library_directory() -> str:
    """Compile the library once a test session and return its folder, for LD_LIBRARY_PATH."""
    directory = tempfile.mkdtemp(prefix="simnvml-")
    library = f"{directory}/libnvidia-ml.so.1"
    command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Werror", "-shared", "-fPIC"]
    subprocess.run([*command, "-Wl,-soname,libnvidia-ml.so.1", "-o", library, str(_SOURCE), "-lm"], check=True)
    return directory


def environment(gpus: str = "H100:0x1a", **environ: str) -> dict[str, str]:
    """The environment of a process that finds these GPUs; CUDA_VISIBLE_DEVICES only as given."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**inherited, "LD_LIBRARY_PATH": library_directory(), "SIMNVML_GPUS": gpus, **environ}


def python_under_nvml(code: str, gpus: str, **environ: str) -> str:
    """Run `code` in a fresh interpreter that finds these GPUs, and return what it prints."""
    process = [sys.executable, "-c", code]
    done = subprocess.run(process, env=environment(gpus, **environ), capture_output=True, text=True, check=True)
    return done.stdout.strip()


class Power:
    """A scripted power curve, and the truth about its energy.

    Args:
        pieces: Watts and seconds, repeated for ever.
        origin_ns: When the first piece begins, monotonic.
    """

    def __init__(self, pieces: Sequence[tuple[float, float]], origin_ns: int = 0) -> None:
        self.pieces = list(pieces)
        self.origin_ns = origin_ns
        self._from_s = [0.0, *itertools.accumulate(seconds for _, seconds in pieces)]
        self._from_j = [0.0, *itertools.accumulate(watts * seconds for watts, seconds in pieces)]

    def environ(self, path: Path) -> dict[str, str]:
        """The variables that script the library; the curve goes to a file at `path`."""
        path.write_text(",".join(f"{watts!r}:{seconds!r}" for watts, seconds in self.pieces))
        return {"SIMNVML_POWER": f"@{path}", "SIMNVML_ORIGIN_NS": str(self.origin_ns)}

    def energy_j(self, start_ns: float, end_ns: float) -> float:
        """Energy between two moments, in J."""
        return self._until(end_ns) - self._until(start_ns)

    def _until(self, at_ns: float) -> float:
        cycles, rest_s = divmod((at_ns - self.origin_ns) / 1e9, self._from_s[-1])
        piece = min(bisect.bisect_right(self._from_s, rest_s) - 1, len(self.pieces) - 1)
        begun_j = cycles * self._from_j[-1] + self._from_j[piece]
        return begun_j + (rest_s - self._from_s[piece]) * self.pieces[piece][0]


class Control:
    """What a test changes while the library is in use.

    Args:
        path: File of the control block; give it to the process as SIMNVML_CONTROL.
    """

    _LAYOUT = struct.Struct("<qqiI")

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(4096))
        self.path = path
        with path.open("r+b") as file:
            self._block = mmap.mmap(file.fileno(), 4096)
        self._fields = [0, 0, 0, 0]

    def _set(self, field: int, value: int) -> None:
        self._fields[field] = value
        self._block[: self._LAYOUT.size] = self._LAYOUT.pack(*self._fields)

    def at(self, now_ns: int) -> None:
        """Set the virtual clock; 0 goes back to the real one."""
        self._set(0, now_ns)

    def reload_driver(self, at_ns: int) -> None:
        """The energy counter began again at 0 then."""
        self._set(1, at_ns)

    def fail(self, code: int) -> None:
        """Make every call return a code; 0 ends that."""
        self._set(2, code)

    def lose(self, *gpus: int) -> None:
        """Let these GPUs fall off the bus, and no others."""
        self._set(3, sum(1 << gpu for gpu in gpus))
