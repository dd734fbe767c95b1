"""From integer nanoseconds, bytes and millijoules to what a person reads; the only place that does so."""

from __future__ import annotations

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

_TIME_STEPS = ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (120.0, 1.0, "s"))
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_MIN_DIGITS_FOR_INTEGER = 100
_UNIT_WORDS = {"W": "W", "Cel": "C", "{core}": "cores"}


def seconds(duration_ns: int) -> float:
    """Convert a duration for OpenTelemetry metrics, whose unit is the second.

    Args:
        duration_ns: A duration in nanoseconds.

    Returns:
        The duration in seconds.
    """
    return duration_ns / NS_PER_S


def milliseconds(duration_ns: int) -> float:
    """Convert a duration for the analysis, whose unit is the millisecond.

    Args:
        duration_ns: A duration in nanoseconds.

    Returns:
        The duration in milliseconds.
    """
    return duration_ns / NS_PER_MS


def format_duration(duration_s: float) -> str:
    """Write a duration with three significant digits and the unit that suits it.

    Args:
        duration_s: A duration in seconds, 0 or more.

    Returns:
        For instance `0 s`, `1.50 ms`, `42.0 s`, `3 min 20 s`, `2 h 05 min`.
    """
    if duration_s == 0:
        return "0 s"
    for below, factor, unit in _TIME_STEPS:
        if duration_s < below:
            return f"{_three_digits(duration_s * factor)} {unit}"
    minutes, rest_s = divmod(round(duration_s), 60)
    if minutes < 60:
        return f"{minutes} min {rest_s} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def format_ms(duration_ms: float | None, absent: str = "-") -> str:
    """Write a duration given in milliseconds; an unmeasured one is never shown as zero.

    Args:
        duration_ms: A duration in milliseconds, or None when it was not measured.
        absent: What to write for None.

    Returns:
        For instance `12.3 ms`, or `absent`.
    """
    return absent if duration_ms is None else format_duration(duration_ms / 1e3)


def format_share(share: float | None, absent: str = "-") -> str:
    """Write a share as a percentage.

    Args:
        share: A share between 0 and 1, or None when it is unknown.
        absent: What to write for None.

    Returns:
        For instance `83.4 %`, or `absent`.
    """
    return absent if share is None else f"{share * 100:.1f} %"


def format_bytes(size_bytes: float) -> str:
    """Write a size with binary prefixes.

    Args:
        size_bytes: A size in bytes, 0 or more.

    Returns:
        For instance `512 B`, `1.50 GiB`.
    """
    size = float(size_bytes)
    for unit in _BYTE_UNITS[:-1]:
        if size < 1024:
            return f"{int(size)} B" if unit == "B" else f"{_three_digits(size)} {unit}"
        size /= 1024
    return f"{_three_digits(size)} {_BYTE_UNITS[-1]}"


def format_energy(energy_mj: float | None, absent: str = "-") -> str:
    """Write an energy given in millijoules.

    Args:
        energy_mj: An energy in mJ, 0 or more; None when it was not measured.
        absent: What to write for None.

    Returns:
        For instance `12.3 mJ`, `45.0 J`, `1.20 kJ`, `3.60 MJ`, or `absent`.
    """
    if energy_mj is None:
        return absent
    for below, factor, unit in ((1e3, 1.0, "mJ"), (1e6, 1e-3, "J"), (1e9, 1e-6, "kJ")):
        if abs(energy_mj) < below:
            return f"{_three_digits(energy_mj * factor)} {unit}"
    return f"{_three_digits(energy_mj * 1e-9)} MJ"


def format_quantity(value: float | None, unit: str, absent: str = "-") -> str:
    """Write a reading in the form that suits its unit.

    Args:
        value: The reading, or None when it was not measured.
        unit: Its unit in UCUM: `1` for a share, `By`, `ms`, `mJ`, `W`, `Cel`, `{core}`.
        absent: What to write for None.

    Returns:
        For instance `83.4 %`, `1.50 GiB`, `85 C`, `310 W`, `2.5 cores`, or `absent`.
    """
    if value is None:
        return absent
    if unit == "1":
        return format_share(value)
    if unit == "By":
        return format_bytes(value) if value >= 0 else f"-{format_bytes(-value)}"
    if unit == "ms":
        return format_ms(value)
    if unit == "mJ":
        return format_energy(value)
    return f"{_three_digits(value)} {_UNIT_WORDS[unit]}"


def _three_digits(value: float) -> str:
    if value >= _MIN_DIGITS_FOR_INTEGER:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
