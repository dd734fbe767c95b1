"""What the store holds about energy, as timelines of devices, counters and steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stepmeter.analysis.energy.attribution import MODULES, DeviceReadings
from stepmeter.analysis.energy.counter import CounterTimeline
from stepmeter.analysis.energy.counters import CounterName, CounterSeries, ServerCounters, trusted
from stepmeter.analysis.energy.exact import Ints
from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.analysis.energy.trajectory import Sources
from stepmeter.analysis.queries import query

if TYPE_CHECKING:
    from stepmeter.store.snapshot import Snapshot

_END_OF_TIME_NS = 2**63 - 1

Columns = Mapping[str, "np.ndarray[Any, Any]"]

_COUNTERS: Mapping[str, CounterName] = {
    "stepmeter.inference.prompt_tokens": "prompt_tokens",
    "stepmeter.inference.generation_tokens": "generation_tokens",
    "stepmeter.inference.prefix_cache.queries": "cache_queries",
    "stepmeter.inference.prefix_cache.hits": "cache_hits",
    "stepmeter.inference.prefill.time": "prefill_time_ns",
    "stepmeter.inference.decode.time": "decode_time_ns",
}


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read of energy.

    Attributes:
        gpus: By UUID.
        hosts: CPU packages and memory, by name of their host, which is empty where nobody told it.
    """

    gpus: tuple[DeviceReadings, ...]
    hosts: Mapping[str, tuple[DeviceReadings, ...]]


def load_readings(
    source: Snapshot, attempt: int | None = None, first_ns: int = 0, last_ns: int = _END_OF_TIME_NS
) -> Readings:
    """Read all that is known of devices' energy.

    Args:
        source: One snapshot of the store.
        attempt: Whose readings; None for all.
        first_ns: Readings from then on, Unix time in ns.
        last_ns: Readings until then, Unix time in ns.

    Returns:
        One entry a device that has readings.
    """
    span = (attempt, first_ns, last_ns)
    ticks: dict[str, CounterTimeline | None] = {}
    hosts: dict[str, tuple[DeviceReadings, ...]] = {}
    for hw_id, part in _by_device(source, "energy_ticks", span):
        counter, kind, host = _counter(hw_id, part), str(part["hw_type"][0]), str(part["host"][0])
        if kind == "gpu":
            ticks[hw_id] = counter
        elif counter is not None:
            zone = DeviceReadings(hw_id, counter, None, kind="cpu" if kind == "cpu" else "memory")
            hosts[host] = (*hosts.get(host, ()), zone)
    power = {hw_id: _power(hw_id, part) for hw_id, part in _by_device(source, "energy_power", span)}
    known = {row[0]: (*row[1:4], row[5]) for row in source.rows(query("energy_devices"), (first_ns, last_ns))}
    found = []
    for hw_id in sorted({*ticks, *power}):
        limit_w, others, throttled, name = known.get(hw_id, (None, None, None, None))
        limit_mw = None if limit_w is None else round(limit_w * 1000)
        readings = DeviceReadings(hw_id, ticks.get(hw_id), power.get(hw_id), limit_mw, bool(others), throttled)
        found.append(replace(readings, is_module=any(part in (name or "") for part in MODULES)))
    return Readings(tuple(found), hosts)


def load_sources(source: Snapshot) -> Sources:
    """Read all that a trajectory is joined with.

    Args:
        source: One snapshot of the store.

    Returns:
        Devices, the server's counters and the anchor.
    """
    readings = load_readings(source)
    devices = readings.gpus
    anchor_ns, lacks_anchor = source.rows(query("energy_anchor"))[0]
    whole = [len(device.power.time_ns) for device in devices if device.power is not None]
    samples = sum(whole) or len(source.columns(query("energy_power"), (None, 0, _END_OF_TIME_NS))["power_mw"])
    zones = tuple(itertools.chain.from_iterable(readings.hosts.values()))
    return Sources(devices, load_counters(source), samples, anchor_ns, bool(lacks_anchor), zones)


def load_counters(source: Snapshot) -> ServerCounters:
    """Read an inference server's counters.

    Args:
        source: One snapshot of the store.

    Returns:
        Those that were read and did not go backwards, and why others can't be used.
    """
    series: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    for metric, name, time_ns, reading in source.rows(query("energy_counters")):
        times, values = series.setdefault((metric, name), ([], []))
        times.append(time_ns)
        values.append(reading)
    found: dict[CounterName, list[CounterSeries]] = {}
    for (metric, _), (times, values) in series.items():
        if metric in _COUNTERS:
            found.setdefault(_COUNTERS[metric], []).append(CounterSeries(times, values))
    return trusted(found)


def load_faults(source: Snapshot) -> dict[str, str]:
    """Why queries of devices failed, as a JSON object by reason, by UUID."""
    rows = source.rows(query("energy_devices"), (0, _END_OF_TIME_NS))
    return {row[0]: row[4] for row in rows if row[4]}


def _by_device(source: Snapshot, name: str, span: tuple[int | None, int, int]) -> Iterator[tuple[str, Columns]]:
    columns = source.columns(query(name), span)
    devices = columns["hw_id"]
    edges = np.flatnonzero(devices[1:] != devices[:-1]).tolist()
    bounds = [0, *(edge + 1 for edge in edges), len(devices)] if len(devices) else []
    for start, end in itertools.pairwise(bounds):
        yield str(devices[start]), {key: column[start:end] for key, column in columns.items()}


def _power(hw_id: str, columns: Columns) -> PowerTimeline | None:
    if len(columns["time_ns"]) < 2:
        return None
    return PowerTimeline(hw_id, _ints(columns["time_ns"]), _ints(columns["power_mw"]))


def _counter(hw_id: str, columns: Columns) -> CounterTimeline | None:
    """Ticks of a counter: readings at which it had moved.

    Where nobody says when it moved, it moved since the reading before; then the first reading tells no time.
    """
    time_ns, energy_mj = _ints(columns["time_ns"]), _ints(columns["energy_mj"])
    gaps = np.ma.asarray(columns["gap_ns"])
    since_ns = np.concatenate([[-1], np.diff(time_ns)])
    gap_ns = np.where(np.ma.getmaskarray(gaps), since_ns, np.ma.getdata(gaps)).astype(np.int64)
    moved = np.concatenate([[True], np.diff(energy_mj) != 0]) & (gap_ns >= 0)
    if moved.sum() < 2:
        return None
    return CounterTimeline(hw_id, (time_ns - gap_ns)[moved], time_ns[moved], energy_mj[moved])


def _ints(column: np.ndarray[Any, Any]) -> Ints:
    return np.asarray(column, dtype=np.int64)
