"""Device readings and inference counters: points of one device or server at one time, put together into one row."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from stepmeter.store.schema import COUNTER_SAMPLES, GPU_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepmeter.collector.decode import ResourceFacts, Rows, RunKey
    from stepmeter.store.schema import Table

_POWER: Final = "hw.power"
_AVERAGE: Final = "average"
_TICK_GAP: Final = "stepmeter.energy.tick_gap"

_GPU: Final[dict[str, tuple[str, Callable[[float], float]]]] = {
    "hw.energy": ("energy_mj", lambda joules: round(joules * 1000)),
    _POWER: ("power_mw", lambda watts: round(watts * 1000)),
    "hw.gpu.utilization": ("utilization", float),
    "hw.gpu.memory.usage": ("memory_used_bytes", round),
    "hw.temperature": ("temperature_celsius", float),
    _TICK_GAP: ("gap_ns", lambda seconds: round(seconds * 1e9)),
}
_COUNTERS: Final[dict[str, tuple[str, Callable[[float], float]]]] = {
    "stepmeter.inference.prompt_tokens": ("prompt_tokens", round),
    "stepmeter.inference.generation_tokens": ("generation_tokens", round),
    "stepmeter.inference.prefix_cache.queries": ("prefix_cache_queries", round),
    "stepmeter.inference.prefix_cache.hits": ("prefix_cache_hits", round),
    "stepmeter.inference.prefill.time": ("prefill_time_ns", lambda seconds: round(seconds * 1e9)),
    "stepmeter.inference.decode.time": ("decode_time_ns", lambda seconds: round(seconds * 1e9)),
}
_MAX_INT: Final = 2**63 - 1


@dataclass(slots=True)
class Samples:
    """The samples of one request.

    Attributes:
        found: Values of columns by table and what tells its samples apart.
    """

    found: dict[tuple[RunKey, Table, tuple[Any, ...]], dict[str, Any]] = field(default_factory=dict)

    def add(
        self, run: RunKey, facts: ResourceFacts, metric: str, point: Any, attributes: dict[str, Any], rank: int | None
    ) -> None:
        """Take what a point tells.

        Args:
            run: The run that it belongs to.
            facts: Its resource.
            metric: Name of its metric.
            point: The data point.
            attributes: All of its attributes.
            rank: Its rank, or None.
        """
        value = point.as_int or point.as_double
        kind = attributes.get("kind") if metric == _POWER else None
        if not -_MAX_INT < value * 1e9 < _MAX_INT * 1e9:  # NaN and infinities are no readings
            return
        common = {"run_id": run.run_id, "resource_id": facts.resource_id}
        if metric in _COUNTERS:
            column, convert = _COUNTERS[metric]
            names = {"engine": attributes.get("engine"), "model": attributes.get("model")}
            key = (facts.resource_id, names["engine"], names["model"], point.time_unix_nano)
            sample = self.found.setdefault((run, COUNTER_SAMPLES, key), {**common, **names})
            sample["time_ns"] = point.time_unix_nano
        else:
            column, convert = _GPU[metric]
            hw_id = attributes.get("hw.id") or facts.attributes.get("hw.id")
            if not isinstance(hw_id, str):
                return
            sample = self.found.setdefault((run, GPU_SAMPLES, (hw_id, point.time_unix_nano)), dict(common))
            if kind == _AVERAGE and "power_mw" in sample:
                return  # the moment's own power says more
            sample |= {
                "hw_id": hw_id,
                "hw_type": attributes.get("hw.type") or facts.attributes.get("hw.type"),
                "host": facts.attributes.get("host.name"),
                "rank": rank,
                "t_hi_ns": point.time_unix_nano,
            }
        sample[column] = convert(value)
        if metric == _POWER:
            sample["power_kind"] = kind if isinstance(kind, str) else None

    def into(self, rows: Rows) -> None:
        """Append the samples as rows.

        Args:
            rows: Where they go.
        """
        for (run, table, _), sample in self.found.items():
            gap_ns = sample.pop("gap_ns", None)
            if gap_ns is not None:
                sample["t_lo_ns"] = sample["t_hi_ns"] - gap_ns
            if table is GPU_SAMPLES and not any(column in sample for column, _ in _GPU.values()):
                continue  # a gap without its reading says nothing
            rows.of(run, table).append(tuple(sample.get(name) for name in table.column_names))


SAMPLED: Final = frozenset({*_GPU, *_COUNTERS})
"""Names of the metrics whose points are samples too."""
