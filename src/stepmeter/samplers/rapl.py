"""Energy of CPU packages and memory by RAPL, where the kernel lets it be read.

Source: Linux Documentation/power/powercap/powercap.rst. Packages and their `dram` are read; `psys` contains the
packages and is left out, so that a sum over devices counts nothing twice; `intel-rapl-mmio` repeats them.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.reading import Reading
from stepmeter.conventions import metrics
from stepmeter.conventions.attributes import HW_ID
from stepmeter.conventions.resource import HW_TYPE
from stepmeter.samplers.lock import DeviceLock
from stepmeter.units import seconds

LOCK_NAME = "rapl"

POWERCAP = Path("/sys/class/powercap")

INTERVAL_S = 0.1
"""Between readings: what a step shorter than that took is shared out, as on a GPU's counter."""

_MICRO = 1_000_000
_UPDATE_NS = 1_000_000
"""The counters move each millisecond.

Source: Intel SDM vol. 3B, 16.10.1: about 1 ms."""


@dataclass(slots=True)
class _Zone:
    """One counter; `total_uj` goes on where the counter wraps."""

    file: Path
    range_uj: int
    attributes: tuple[tuple[str, str | int], ...]
    last_uj: int
    total_uj: int

    def read(self) -> int:
        now_uj = int(self.file.read_text(encoding="ascii"))
        rise_uj = now_uj - self.last_uj
        self.last_uj = now_uj
        # the counter's range counts from 0, so that wrapping loses one unit more
        self.total_uj += rise_uj if rise_uj >= 0 else rise_uj + self.range_uj + 1
        return self.total_uj


class RaplSampler:
    """Reads all packages and their memory.

    Args:
        powercap: Where the kernel shows them; None for `POWERCAP`.
        now_ns: The monotonic clock.
        lock: Of one run on this host's counters, so that of several processes one reads them; None reads always.

    Raises:
        OSError: There is none that may be read.
    """

    def __init__(
        self,
        powercap: Path | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
        lock: DeviceLock | None = None,
    ) -> None:
        self._now_ns = now_ns
        self._lock = lock
        powercap = powercap or POWERCAP
        self._zones = _zones(powercap, socket.gethostname())
        if not self._zones:
            raise FileNotFoundError(f"{powercap}: no RAPL counter that may be read")

    def read(self, at_ns: int) -> list[Reading]:
        """Read once; counters wrap once a minute at most, so once a second misses none.

        Args:
            at_ns: Now, monotonic.

        Returns:
            Energy in J of each package and memory, growing even where the counter wraps, and how well the moment is
            known at which it was that; empty while another process reads them.
        """
        if self._lock is not None and not self._lock.take():
            return []
        found = []
        before_ns = at_ns
        for zone in self._zones:
            try:
                energy_uj = zone.read()
            except (OSError, ValueError):  # taken away meanwhile; the others go on
                continue
            now_ns = self._now_ns()
            gap_s = seconds(now_ns - before_ns + _UPDATE_NS)
            found.append(Reading(metrics.HW_ENERGY.name, energy_uj / _MICRO, now_ns, zone.attributes))
            found.append(Reading(metrics.ENERGY_TICK_GAP.name, gap_s, now_ns, zone.attributes))
            before_ns = now_ns
        return found


def _zones(powercap: Path, host: str) -> list[_Zone]:
    found: dict[str, _Zone] = {}
    for package in sorted(powercap.glob("intel-rapl:*")):
        if package.name.count(":") == 1:
            name = _text(package / "name")
            if name is not None and name.startswith("package"):
                _add(found, package, f"{host}/{name}", "cpu")
                for part in sorted(powercap.glob(f"{package.name}:*")):
                    if _text(part / "name") == "dram":
                        _add(found, part, f"{host}/{name}/dram", "memory")
    return list(found.values())


def _add(into: dict[str, _Zone], folder: Path, hw_id: str, hw_type: str) -> None:
    energy, largest = _text(folder / "energy_uj"), _text(folder / "max_energy_range_uj")
    if energy is None or largest is None or hw_id in into or not energy.isdigit() or not largest.isdigit():
        return
    attributes = ((HW_ID.key, hw_id), (HW_TYPE.key, hw_type))
    into[hw_id] = _Zone(folder / "energy_uj", int(largest), attributes, int(energy), int(energy))


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
