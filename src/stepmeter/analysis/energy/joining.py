"""A trajectory's steps joined with the devices' samples, strictly: integers, whole segments, an exact remainder.

Source: the trajectory decision record; where its implementation departs from it (the baseline of counters, what a
counter that regresses withholds), the text holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepmeter.analysis.energy.apportion import apportion
from stepmeter.analysis.energy.attribution import DeviceReadings, estimate
from stepmeter.analysis.energy.counters import ServerCounters, phase_share
from stepmeter.analysis.energy.exact import DOUBLED_PER_MJ, Ints
from stepmeter.analysis.energy.model import METHODS, Estimate, Scope
from stepmeter.analysis.energy.power import PowerTimeline
from stepmeter.analysis.energy.sharing import Windows, union
from stepmeter.analysis.energy.steps import TrajectoryStep
from stepmeter.analysis.energy.trajectory import (
    ApportionBy,
    DroppedStep,
    Sources,
    StepEnergy,
    Trajectory,
    Withheld,
)


def join(
    steps: Sequence[TrajectoryStep], sources: Sources, apportion_by: ApportionBy | None = None
) -> Trajectory | Withheld:
    """Join steps with what was read while they ran.

    Args:
        steps: In any order.
        sources: Device samples and counters.
        apportion_by: How steps that overlap share their energy; None drops the later one.

    Returns:
        The trajectory, or why there is none.

    Raises:
        CheckFailedError: Steps and remainder are not the whole.
        UsageError: `apportion_by` needs what the steps do not have.
    """
    timelines = [device.power for device in sources.devices if device.power is not None]
    reason = _why_withheld(steps, timelines, sources)
    if reason is not None:
        return Withheld(reason, _unpriced(steps, sources), _host_total_mj(sources))
    run = _run_window(timelines)
    kept, dropped = _keep(steps, *run, overlaps=apportion_by is not None)
    doubled = _strict(kept, timelines) if apportion_by is None else apportion(kept, timelines, sources, apportion_by)
    anchor_ns = run[0] if sources.anchor_unix_ns is None else sources.anchor_unix_ns
    estimates = _estimates(kept, sources.devices)
    hosts = _estimates(kept, sources.zones)
    total_mj = sum(timeline.total() for timeline in timelines) // DOUBLED_PER_MJ
    return Trajectory(
        steps=tuple(
            _figure(step, energy // DOUBLED_PER_MJ, found, host, anchor_ns, timelines, sources.counters)
            for step, energy, found, host in zip(kept, doubled, estimates, hosts, strict=True)
        ),
        dropped_steps=dropped,
        total_energy_mj=total_mj,
        run_duration_ns=run[1] - run[0],
        anchor_unix_ns=anchor_ns,
        anchor_source="first_device_sample" if sources.anchor_unix_ns is None else "run",
        counters=sources.counters,
        total_generation_tokens=sources.counters.whole("generation_tokens"),
        bases=tuple((device.hw_id, device.bases()) for device in sources.devices),
        phase_share=phase_share(sources.counters, _headline_mj(sources.devices, total_mj)),
        is_measurement=_is_measurement(kept, dropped, sources.devices),
        apportioned_by=apportion_by,
        host_total_mj=_host_total_mj(sources),
    )


def _unpriced(steps: Sequence[TrajectoryStep], sources: Sources) -> tuple[StepEnergy, ...]:
    """Steps without devices: their times count from the first of them."""
    if not steps:
        return ()
    in_order = sorted(steps, key=lambda one: (one.start_unix_ns, one.step_id))
    origin_ns = in_order[0].start_unix_ns
    hosts = _estimates(in_order, sources.zones)
    return tuple(
        _figure(step, None, None, host, origin_ns, (), sources.counters)
        for step, host in zip(in_order, hosts, strict=True)
    )


def _host_total_mj(sources: Sources) -> int | None:
    counters = [zone.counter for zone in sources.zones if zone.counter is not None]
    return sum(int(counter.grown_mj[-1]) for counter in counters) if counters else None


def _why_withheld(steps: Sequence[TrajectoryStep], timelines: Sequence[PowerTimeline], sources: Sources) -> str | None:
    if not steps:
        return "no_steps"
    if not sources.device_samples:
        return "no_device_timeline"
    if not timelines:
        return "fewer_than_two_samples"
    return "no_anchor" if sources.lacks_anchor else None


def _run_window(timelines: Sequence[PowerTimeline]) -> tuple[int, int]:
    first = min(int(timeline.time_ns[0]) for timeline in timelines)
    return first, max(int(timeline.time_ns[-1]) for timeline in timelines)


def _keep(
    steps: Sequence[TrajectoryStep], first_ns: int, last_ns: int, *, overlaps: bool
) -> tuple[list[TrajectoryStep], tuple[DroppedStep, ...]]:
    """By start, then id; a step that begins before the last kept one ended is dropped unless overlaps are welcome."""
    kept: list[TrajectoryStep] = []
    dropped = []
    for step in sorted(steps, key=lambda one: (one.start_unix_ns, one.step_id)):
        if step.start_unix_ns < first_ns or step.end_unix_ns > last_ns:
            dropped.append(DroppedStep(step.step_id, "outside_run_window"))
        elif kept and not overlaps and step.start_unix_ns < kept[-1].end_unix_ns:
            dropped.append(DroppedStep(step.step_id, "overlaps_preceding_step"))
        else:
            kept.append(step)
    return kept, tuple(dropped)


def _strict(steps: Sequence[TrajectoryStep], timelines: Sequence[PowerTimeline]) -> list[int]:
    """Doubled mW·ns of each step over all devices; the remainder of each device is summed on its own and checked."""
    windows = _windows(steps)
    by_device = [timeline.split(*windows)[0].integers() for timeline in timelines]
    return [sum(parts) for parts in zip(*by_device, strict=True)]


def _windows(steps: Sequence[TrajectoryStep]) -> tuple[Ints, Ints]:
    start_ns = np.array([step.start_unix_ns for step in steps], dtype=np.int64)
    return start_ns, np.array([step.end_unix_ns for step in steps], dtype=np.int64)


def _figure(
    step: TrajectoryStep,
    energy_mj: int | None,
    found: Estimate | None,
    host: Estimate | None,
    anchor_ns: int,
    timelines: Sequence[PowerTimeline],
    counters: ServerCounters,
) -> StepEnergy:
    window = (step.start_unix_ns, step.end_unix_ns)
    edges = np.array(window)
    inside = [
        int(np.searchsorted(one.time_ns, edges[1], side="right") - np.searchsorted(one.time_ns, edges[0]))
        for one in timelines
    ]
    return StepEnergy(
        step=step,
        start_elapsed_ns=step.start_unix_ns - anchor_ns,
        end_elapsed_ns=step.end_unix_ns - anchor_ns,
        samples_in_window=sum(inside),
        energy_mj=energy_mj,
        generation_tokens_delta=counters.delta("generation_tokens", *window),
        prompt_tokens_delta=counters.delta("prompt_tokens", *window),
        cache_hits_delta=counters.delta("cache_hits", *window),
        cache_queries_delta=counters.delta("cache_queries", *window),
        prefill_time_ns_delta=counters.delta("prefill_time_ns", *window),
        decode_time_ns_delta=counters.delta("decode_time_ns", *window),
        estimate=found,
        host=host,
    )


def _estimates(steps: Sequence[TrajectoryStep], devices: Sequence[DeviceReadings]) -> Sequence[Estimate | None]:
    """Each step's energy on all devices together, as sure as the least sure of them; None without devices."""
    if not devices:
        return [None] * len(steps)
    start_ns, end_ns = _windows(steps)
    by_device = []
    for device in devices:
        found = estimate(device, start_ns, end_ns, device.sharing(*_loads(steps)))
        period_ns = None if device.counter is None else device.counter.update_period_ns
        scope = _scope(device)
        by_device.append([found.one(i, period_ns, "not_covered_by_readings", scope) for i in range(len(found))])
    return [_sum(list(parts)) for parts in zip(*by_device, strict=True)]


def _scope(device: DeviceReadings) -> Scope:
    if device.kind != "gpu":
        return "host"
    if device.other_processes:
        return "gpu_shared"
    return "module" if device.is_module else "gpu"


def _loads(steps: Sequence[TrajectoryStep]) -> list[Windows]:
    """Calls and tools draw differently; where steps overlap one can't be told from the other."""
    start_ns, end_ns = _windows(steps)
    if (start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]).any():
        return [union(start_ns, end_ns)]
    kinds = np.array([step.kind for step in steps])
    return [Windows(start_ns[kinds == kind], end_ns[kinds == kind]) for kind in sorted(set(kinds.tolist()))]


def _sum(parts: Sequence[Estimate]) -> Estimate:
    worst = max(parts, key=lambda part: METHODS.index(part.method))
    if worst.value_mj is None or len(parts) == 1:
        return worst
    periods = [part.update_period_ns for part in parts if part.update_period_ns is not None]
    return Estimate(
        value_mj=sum(part.value_mj or 0 for part in parts),
        lower_mj=sum(part.lower_mj or 0 for part in parts),
        upper_mj=sum(part.upper_mj or 0 for part in parts),
        method=worst.method,
        ticks=sum(part.ticks for part in parts),
        update_period_ns=max(periods, default=None),
        scope=next((part.scope for part in parts if part.scope != "gpu"), "gpu"),
    )


def _headline_mj(devices: Sequence[DeviceReadings], integral_mj: int) -> int:
    """The run's energy by the counters where all devices have one, else integrated."""
    counters = [device.counter for device in devices]
    if any(counter is None for counter in counters):
        return integral_mj
    return sum(int(counter.grown_mj[-1]) for counter in counters if counter is not None)


def _is_measurement(
    kept: Sequence[TrajectoryStep], dropped: Sequence[DroppedStep], devices: Sequence[DeviceReadings]
) -> bool:
    """Whether each window held one step's work and no one else's was seen."""
    start_ns, end_ns = _windows(kept)
    overlap = bool((start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]).any())
    overlap = overlap or any(one.reason == "overlaps_preceding_step" for one in dropped)
    return not overlap and not any(device.other_processes for device in devices)
