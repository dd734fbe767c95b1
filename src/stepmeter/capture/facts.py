"""What a step's regions add up to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stepmeter.capture.region import DeviceTimes, Region
from stepmeter.capture.step import StepTimeBatch
from stepmeter.conventions.phases import INPUT_WAIT, PHASES


@dataclass(slots=True)  # frozen, it takes four times as long to make
class PhaseFacts:
    """One phase of one step.

    Attributes:
        cpu_ns: Time in its regions on the CPU clock, less the regions of other phases nested in them.
        gpu_ns: Time on the device clock likewise; None without one.
        count: Number of its regions.
    """

    cpu_ns: int
    gpu_ns: int | None
    count: int


class StepFacts(NamedTuple):
    """What a step span carries of the timing.

    Attributes:
        phases: The observed phases by name; a phase that was not observed is absent.
        traced_cpu_ns: From the end of the first input wait to the step's end, less the input waits inside.
        traced_gpu_ns: The same on the device clock; None without one.
        device_start_ns: Start of the device's work, monotonic; None without a device clock.
        device_end_ns: End of the device's work, monotonic; None without a device clock.
        regions_gpu_ns: Duration of each region on the device clock; empty without one.
    """

    phases: dict[str, PhaseFacts]
    traced_cpu_ns: int
    traced_gpu_ns: int | None = None
    device_start_ns: int | None = None
    device_end_ns: int | None = None
    regions_gpu_ns: tuple[int | None, ...] = ()


def step_facts(batch: StepTimeBatch, device: DeviceTimes | None = None) -> StepFacts:
    """Sum a step's regions up, each moment counted in its innermost region only.

    Forward and backward run inside `optimizer.step(closure)` with LBFGS and Lightning, so regions nest.

    Args:
        batch: A completed step.
        device: What the device's clock says of it.

    Returns:
        Its facts; the phases and the residual add up to the step. A phase of which one region was not timed on the
        device has no device time.
    """
    found = _of_a_row(batch.regions) if device is None else None
    phases = found or _of_a_nest(batch.regions, device)
    input_wait = phases.get(INPUT_WAIT)
    waited_ns = 0 if input_wait is None else input_wait.cpu_ns
    traced_ns = max(0, batch.end_ns - batch.start_ns - waited_ns - batch.away_ns)
    if device is None:
        return StepFacts(phases, traced_ns)
    return StepFacts(phases, traced_ns, device.traced_ns, device.start_ns, device.end_ns, device.regions_ns)


def _of_a_row(regions: Sequence[Region]) -> dict[str, PhaseFacts] | None:
    """The phases of regions of which each begins when the one before has ended, as in most steps; None if they nest."""
    totals: dict[int, tuple[int, int]] = {}
    last_ns = 0
    for phase, start_ns, end_ns, _ in regions:
        if start_ns < last_ns:
            return None
        last_ns = end_ns
        own_ns, count = totals.get(phase, (0, 0))
        totals[phase] = (own_ns + end_ns - start_ns, count + 1)
    return {PHASES[phase]: PhaseFacts(own_ns, None, count) for phase, (own_ns, count) in sorted(totals.items())}


def _of_a_nest(regions: Sequence[Region], device: DeviceTimes | None) -> dict[str, PhaseFacts]:
    """The phases of any regions."""
    order, outer = _nesting(regions)
    own_ns = _exclusive([region[2] - region[1] for region in regions], order, outer)
    own_gpu_ns: Sequence[int | None] = [None] * len(regions)
    if device is not None:
        own_gpu_ns = _exclusive(device.regions_ns, order, outer)
    phases = {}
    for phase in sorted({region[0] for region in regions}):
        indices = [index for index, region in enumerate(regions) if region[0] == phase]
        cpu_ns = sum(own_ns[index] or 0 for index in indices)
        gpu_ns = [own_gpu_ns[index] for index in indices]
        phases[PHASES[phase]] = PhaseFacts(cpu_ns, _sum_of_all(gpu_ns), len(indices))
    return phases


def _sum_of_all(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _nesting(regions: Sequence[Region]) -> tuple[list[int], list[int | None]]:
    """The regions' indices in the order of their starts, and for each region the index of the one around it."""
    order = sorted(range(len(regions)), key=lambda index: (regions[index][1], -regions[index][2]))
    outer: list[int | None] = [None] * len(regions)
    open_: list[int] = []  # innermost last
    for index in order:
        while open_ and regions[open_[-1]][2] <= regions[index][1]:
            open_.pop()
        if open_:
            outer[index] = open_[-1]
        open_.append(index)
    return order, outer


def _exclusive(
    durations_ns: Sequence[int | None], order: Sequence[int], outer: Sequence[int | None]
) -> list[int | None]:
    """Each region's own time: its duration less that of the regions directly inside it."""
    own = list(durations_ns)
    for index in order:
        around, inside_ns = outer[index], durations_ns[index]
        if around is None:
            continue
        around_ns = own[around]
        own[around] = None if around_ns is None or inside_ns is None else max(0, around_ns - inside_ns)
    return own
