"""Energies as plain text, in ASCII."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepmeter.analysis.energy.model import (
    GAIN_ERROR_SHARE,
    NO_RAPL,
    DeviceEnergy,
    Estimate,
    RankEnergy,
    TrainingEnergy,
)
from stepmeter.analysis.energy.steps import TrajectoryStep
from stepmeter.analysis.energy.trajectory import CLOCK_ASSUMPTION, StepEnergy, Trajectory, Withheld
from stepmeter.units import NS_PER_S, format_duration, format_energy, format_share

_RANK_COLUMNS = ("rank", "steps", "J/step", "half width", "per sample", "per token", "by")
_DEVICE_COLUMNS = ("device", "total", "in steps", "idle", "idle time", "basis")

_WITHHELD = {
    "no_steps": "there are no steps; check the step file, or that the run holds such spans",
    "no_device_timeline": "no device sent hw.power; run `stepmeter sample` beside the server, or `stepmeter doctor`",
    "fewer_than_two_samples": "devices sent fewer than two samples; energy needs time between them",
    "no_anchor": "the run's own samples lack their clock's anchor; collect the run again with this version",
}


def trajectory_text(found: Trajectory | Withheld) -> str:
    """Write a trajectory for people.

    Args:
        found: The trajectory, or why there is none.

    Returns:
        Lines of text.
    """
    if isinstance(found, Withheld):
        lines = [f"No energy of devices: {_WITHHELD.get(found.reason, found.reason)}.", ""]
        if not found.steps:
            return f"{lines[0]}\n"
        return "\n".join([*lines, *_steps(found.steps), "", _of_cpus(found), f"clock: {CLOCK_ASSUMPTION}", ""])
    return "\n".join([_headline(found), "", *_steps(found.steps), "", *_notes(found), ""])


def _steps(steps: Sequence[StepEnergy]) -> Iterable[str]:
    """A column that no step has a figure for is left out."""
    if not steps:
        return ["no step has a figure"]
    rows = [
        ("step", "kind", "time", "energy", "estimate", "between", "CPUs", "tokens", "tok/J", "cache"),
        *map(_row, steps),
    ]
    shown = [number for number, column in enumerate(zip(*rows[1:], strict=True)) if number < 3 or {*column} != {"-"}]
    return _table([tuple(row[number] for number in shown) for row in rows])


def _of_cpus(found: Trajectory | Withheld) -> str:
    if found.host_total_mj is None:
        return f"no energy of CPUs: {NO_RAPL}"
    in_steps_mj = sum(one.host.value_mj or 0 for one in found.steps if one.host is not None)
    return (
        f"CPUs: {format_energy(in_steps_mj)} in steps of {format_energy(found.host_total_mj)}, packages and memory, "
        "whoever used them"
    )


def _headline(found: Trajectory) -> str:
    parts = [f"calls {format_energy(found.energy_of('llm_call'))}", f"tools {format_energy(found.energy_of('tool'))}"]
    if found.energy_of("span"):
        parts = [f"steps {format_energy(found.energy_of('span'))}"]
    share = found.unattributed_energy_mj / found.total_energy_mj if found.total_energy_mj else None
    rest = f"unattributed {format_energy(found.unattributed_energy_mj)} ({format_share(share)})"
    duration = format_duration(found.run_duration_ns / NS_PER_S)
    return f"{format_energy(found.total_energy_mj)} in {duration}: {', '.join(parts)}, {rest}"


def _row(one: StepEnergy) -> tuple[str, ...]:
    step = one.step
    return (
        str(step.step_id),
        _name(step),
        format_duration((step.end_unix_ns - step.start_unix_ns) / NS_PER_S),
        format_energy(one.energy_mj),
        format_energy(one.estimate.value_mj if one.estimate else None),
        _between(one.estimate),
        format_energy(one.host.value_mj if one.host else None),
        _count(one.generation_tokens_delta if step.output_tokens is None else step.output_tokens),
        "-" if one.tokens_per_joule is None else f"{one.tokens_per_joule:.3f}",
        format_share(one.cache_hit_rate),
    )


def _name(step: TrajectoryStep) -> str:
    piece = "" if step.piece is None else f" ({step.piece[0]}/{step.piece[1]})"
    return f"{step.kind} {step.name or ''}{piece}".strip()


def _between(found: Estimate | None) -> str:
    if found is None:
        return "-"
    if found.lower_mj is None or found.upper_mj is None:
        return found.reason or "-"
    return f"{format_energy(found.lower_mj)} .. {format_energy(found.upper_mj)}"


def _count(number: int | None) -> str:
    return "-" if number is None else str(number)


def _notes(found: Trajectory) -> Iterable[str]:
    yield "energy: whole segments of integrated power inside the step; estimate: with the parts at its edges"
    if found.apportioned_by:
        yield f"overlapping steps share their energy by {found.apportioned_by}: apportioned, not measured"
    elif found.is_measurement:
        yield "a measurement as long as one trajectory ran at a time on devices of its own"
    else:
        yield "not a measurement of the steps alone: steps overlap, or another process used the device"
    for one in found.dropped_steps:
        yield f"dropped: step {one.step_id}, {one.reason}"
    for name, reason in found.counters.withheld.items():
        yield f"withheld: {name}, {reason}"
    for hw_id, bases in found.bases:
        if bases.ratio is not None:
            differ = "; they DIFFER" if bases.differ else ""
            yield f"{hw_id}: integrated power is {bases.ratio:.3f} of the counter{differ}"
    share = found.phase_share
    if share is not None and share.prefill_by_time_mj is not None:
        yield (
            f"apportioned to prefill: {format_energy(share.prefill_by_time_mj)} by time, "
            f"{format_energy(share.prefill_by_tokens_mj)} by tokens"
        )
    yield _of_cpus(found)
    yield f"clock: {CLOCK_ASSUMPTION}"
    yield f"beyond all this a board's sensor may be off by {GAIN_ERROR_SHARE:.0%}"


def training_text(found: TrainingEnergy, faults: Mapping[str, str]) -> str:
    """Write the energy of training steps for people.

    Args:
        found: The energies.
        faults: Why queries failed, by device.

    Returns:
        Lines of text.
    """
    lines = [*_of_gpus(found), *_of_hosts(found)]
    lines += [f"{hw_id}: queries failed: {reasons}" for hw_id, reasons in faults.items()]
    if found.ranks or found.host_ranks:
        lines.append(f"beyond the bounds a board's sensor may be off by {GAIN_ERROR_SHARE:.0%}")
    return "\n".join([*lines, ""])


def _of_gpus(found: TrainingEnergy) -> Iterable[str]:
    if found.reason is not None or not found.ranks:
        yield f"No energy per step: {found.reason or 'no step was covered by readings'}."
        return
    per_step = format_energy(found.mj_per_step)
    yield f"{per_step} a step; {format_share(found.idle_share)} of the energy was in nobody's step"
    yield ""
    yield from _ranks_and_devices(found.ranks, found.devices)
    for one in found.devices:
        if one.scope == "gpu_shared":
            yield f"{one.hw_id}: shared; ranks' figures are apportioned"
        if one.is_module:
            yield f"{one.hw_id}: its counter is of the whole module, with its CPU"


def _of_hosts(found: TrainingEnergy) -> Iterable[str]:
    if not found.host_ranks:
        yield f"No energy of CPUs: {found.host_reason}."
        return
    yield f"{format_energy(found.host_mj_per_step)} a step of CPUs and memory, whoever used them"
    yield ""
    yield from _ranks_and_devices(found.host_ranks, found.host_devices)


def _ranks_and_devices(ranks: Sequence[RankEnergy], devices: Sequence[DeviceEnergy]) -> Iterable[str]:
    yield from _table([_RANK_COLUMNS, *map(_rank_row, ranks)])
    yield ""
    yield from _table([_DEVICE_COLUMNS, *map(_device_row, devices)])
    yield ""


def _rank_row(one: RankEnergy) -> tuple[str, ...]:
    return (
        str(one.rank),
        str(one.steps) if not one.unavailable else f"{one.steps} (+{one.unavailable} without)",
        format_energy(one.median_mj),
        format_energy(one.half_width_mj),
        format_energy(one.total_mj / one.samples if one.samples else None),
        format_energy(one.total_mj / one.tokens if one.tokens else None),
        ", ".join(f"{method} {count}" for method, count in one.methods.items()),
    )


def _device_row(one: DeviceEnergy) -> tuple[str, ...]:
    ratio = one.bases.ratio
    basis = "counter" if one.bases.counter_mj is not None else "integrated power"
    if ratio is not None:
        basis += f", power {ratio:.3f} of it" + (", they DIFFER" if one.bases.differ else "")
    return (
        one.hw_id,
        format_energy(one.total_mj),
        format_energy(one.steps_mj),
        format_energy(one.idle_mj),
        format_duration(one.idle_ns / NS_PER_S),
        basis,
    )


def _table(rows: Sequence[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
