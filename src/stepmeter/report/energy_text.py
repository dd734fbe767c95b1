"""Energies as plain text, in ASCII."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from stepmeter.analysis.energy.model import GAIN_ERROR_SHARE, DeviceEnergy, Estimate, RankEnergy, TrainingEnergy
from stepmeter.analysis.energy.trajectory import CLOCK_ASSUMPTION, StepEnergy, Trajectory, Withheld
from stepmeter.units import NS_PER_S, format_duration, format_energy, format_share

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
        return f"No trajectory: {_WITHHELD.get(found.reason, found.reason)}.\n"
    rows = [
        ("step", "kind", "time", "energy", "estimate", "between", "tokens", "tok/J", "cache"),
        *map(_row, found.steps),
    ]
    return "\n".join([_headline(found), "", *_table(rows), "", *_notes(found), ""])


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
        step.kind if step.name is None else f"{step.kind} {step.name}",
        format_duration((step.end_unix_ns - step.start_unix_ns) / NS_PER_S),
        format_energy(one.energy_mj),
        format_energy(one.estimate.value_mj),
        _between(one.estimate),
        _count(one.generation_tokens_delta if step.output_tokens is None else step.output_tokens),
        "-" if one.tokens_per_joule is None else f"{one.tokens_per_joule:.3f}",
        format_share(one.cache_hit_rate),
    )


def _between(found: Estimate) -> str:
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
    if found.reason is not None or not found.ranks:
        failed = "".join(f"\n{hw_id}: queries failed: {reasons}" for hw_id, reasons in faults.items())
        return f"No energy per step: {found.reason or 'no step was covered by readings'}.{failed}\n"
    ranks = [("rank", "steps", "J/step", "half width", "per sample", "per token", "by"), *map(_rank_row, found.ranks)]
    devices = [("device", "total", "in steps", "idle", "idle time", "basis"), *map(_device_row, found.devices)]
    per_step = format_energy(found.mj_per_step)
    lines = [f"{per_step} a step; {format_share(found.idle_share)} of the energy was in nobody's step", ""]
    lines += [*_table(ranks), "", *_table(devices), ""]
    lines += [f"{hw_id}: queries failed: {reasons}" for hw_id, reasons in faults.items()]
    lines += [f"{one.hw_id}: shared; ranks' figures are apportioned" for one in found.devices if one.scope != "gpu"]
    lines.append(f"beyond the bounds a board's sensor may be off by {GAIN_ERROR_SHARE:.0%}")
    return "\n".join([*lines, ""])


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
