"""What an inference server counted inside windows: tokens, cache hits, time in prefill and decode.

The baseline is the last reading at or before a window's start. The reference implementation takes the one strictly
before, so that four contiguous steps on the grid of readings add 400 tokens up to 700.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

CounterName = Literal[
    "prompt_tokens", "generation_tokens", "cache_queries", "cache_hits", "prefill_time_ns", "decode_time_ns"
]
COUNTERS: Final[tuple[CounterName, ...]] = (
    "prompt_tokens",
    "generation_tokens",
    "cache_queries",
    "cache_hits",
    "prefill_time_ns",
    "decode_time_ns",
)


@dataclass(frozen=True, slots=True)
class CounterSeries:
    """Readings of one counter of one served model.

    Attributes:
        time_ns: When they were read, Unix time in ns, ascending.
        values: What they read.
    """

    time_ns: Sequence[int]
    values: Sequence[int]

    @property
    def regresses(self) -> bool:
        """Whether the counter ever went backwards."""
        return any(later < earlier for earlier, later in itertools.pairwise(self.values))

    def delta(self, start_ns: int, end_ns: int) -> int | None:
        """How far the counter moved in a window.

        Args:
            start_ns: Start in ns.
            end_ns: End in ns.

        Returns:
            From the last reading at or before the start, or else the first inside, to the last at or before the end;
            None without a reading after the start and at or before the end.
        """
        at_start = bisect.bisect_right(self.time_ns, start_ns)
        at_end = bisect.bisect_right(self.time_ns, end_ns)
        if at_end <= at_start:
            return None
        return self.values[at_end - 1] - self.values[max(at_start - 1, 0)]

    def whole(self) -> int:
        """From the first reading to the last."""
        return self.values[-1] - self.values[0]


@dataclass(frozen=True, slots=True)
class ServerCounters:
    """All counters that were read, each of one or several models.

    Attributes:
        series: By name of the counter; absent where it was never read, or is withheld.
        withheld: Why a counter that was read is not used, by name.
    """

    series: Mapping[CounterName, tuple[CounterSeries, ...]] = field(default_factory=dict)
    withheld: Mapping[CounterName, str] = field(default_factory=dict)

    def delta(self, name: CounterName, start_ns: int, end_ns: int) -> int | None:
        """How far a counter moved in a window, over all models.

        Args:
            name: The counter.
            start_ns: Start in ns.
            end_ns: End in ns.

        Returns:
            None where it was not read in the window; 0 where it was read and stood still.
        """
        found = [delta for one in self.series.get(name, ()) if (delta := one.delta(start_ns, end_ns)) is not None]
        return sum(found) if found else None

    def whole(self, name: CounterName) -> int | None:
        """How far a counter moved from its first reading to its last; None when it was never read."""
        found = self.series.get(name)
        return sum(one.whole() for one in found) if found else None


def trusted(series: Mapping[CounterName, Sequence[CounterSeries]]) -> ServerCounters:
    """Leave out counters that went backwards, and those alone.

    Args:
        series: Readings by counter, one series a model.

    Returns:
        The counters that can be used, and why others can't.
    """
    regressed = {name for name, found in series.items() if any(one.regresses for one in found)}
    return ServerCounters(
        {name: tuple(found) for name, found in series.items() if found and name not in regressed},
        dict.fromkeys(sorted(regressed), "counter_regressed"),
    )


@dataclass(frozen=True, slots=True)
class PhaseShare:
    """Energy of a whole run apportioned to prefill and decode; a model, not a measurement.

    Attributes:
        prefill_time_ns: Time of requests in prefill.
        decode_time_ns: Time of requests in decode.
        prompt_tokens: Prompt tokens; those found in the cache count as if computed.
        generation_tokens: Generated tokens.
        prefill_by_time_mj: Prefill's energy by time; None without times.
        decode_by_time_mj: Decode's.
        prefill_by_tokens_mj: Prefill's energy by tokens.
        decode_by_tokens_mj: Decode's.
        divergence: Prefill's share by time less its share by tokens; None without times.
    """

    prefill_time_ns: int | None
    decode_time_ns: int | None
    prompt_tokens: int
    generation_tokens: int
    prefill_by_time_mj: int | None
    decode_by_time_mj: int | None
    prefill_by_tokens_mj: int
    decode_by_tokens_mj: int
    divergence: float | None


def phase_share(counters: ServerCounters, energy_mj: int) -> PhaseShare | None:
    """Apportion a run's energy to prefill and decode, by time and by tokens.

    Args:
        counters: Of the server.
        energy_mj: Energy of the run in mJ.

    Returns:
        Both apportionments; None without tokens or energy.

    Source:
        Phase energy as the reference implementation has it (its ADR-012).
    """
    prompt, generation = counters.whole("prompt_tokens"), counters.whole("generation_tokens")
    if not energy_mj or prompt is None or generation is None or not prompt + generation:
        return None
    by_tokens = _split(energy_mj, prompt, generation)
    prefill_ns, decode_ns = counters.whole("prefill_time_ns"), counters.whole("decode_time_ns")
    if prefill_ns is None or decode_ns is None or not prefill_ns + decode_ns:
        return PhaseShare(None, None, prompt, generation, None, None, *by_tokens, None)
    by_time = _split(energy_mj, prefill_ns, decode_ns)
    divergence = prefill_ns / (prefill_ns + decode_ns) - prompt / (prompt + generation)
    return PhaseShare(prefill_ns, decode_ns, prompt, generation, *by_time, *by_tokens, divergence)


def _split(energy_mj: int, first: int, second: int) -> tuple[int, int]:
    part_mj = round(energy_mj * first / (first + second))
    return part_mj, energy_mj - part_mj
