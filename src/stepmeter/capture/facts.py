"""What a step's regions add up to."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

from stepmeter.capture.step import Region, StepTimeBatch
from stepmeter.conventions.phases import INPUT_WAIT, PHASES

_INPUT_WAIT = PHASES.index(INPUT_WAIT)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class StepFacts:
    """What a step span carries of the timing.

    Attributes:
        phases: The observed phases by name; a phase that was not observed is absent.
        traced_cpu_ns: From the end of the first input wait to the step's end, less the input waits inside.
        traced_gpu_ns: The same on the device clock; None without one.
        device_start_ns: Start of the device's work, monotonic; None without a device clock.
        device_end_ns: End of the device's work, monotonic; None without a device clock.
    """

    phases: dict[str, PhaseFacts]
    traced_cpu_ns: int
    traced_gpu_ns: int | None = None
    device_start_ns: int | None = None
    device_end_ns: int | None = None


def step_facts(batch: StepTimeBatch) -> StepFacts:
    """Sum a step's regions up, each moment counted in its innermost region only.

    Forward and backward run inside `optimizer.step(closure)` with LBFGS and Lightning, so regions nest.

    Args:
        batch: A completed step.

    Returns:
        Its facts; the phases and the residual add up to the step.
    """
    exclusive_ns = _exclusive_ns(batch.regions)
    cpu_ns: dict[int, int] = {}
    count: dict[int, int] = {}
    for region, own_ns in exclusive_ns:
        phase = region[0]
        cpu_ns[phase] = cpu_ns.get(phase, 0) + own_ns
        count[phase] = count.get(phase, 0) + 1
    phases = {PHASES[phase]: PhaseFacts(cpu_ns[phase], None, count[phase]) for phase in sorted(cpu_ns)}
    return StepFacts(phases, max(0, batch.end_ns - batch.start_ns - cpu_ns.get(_INPUT_WAIT, 0)))


def _exclusive_ns(regions: list[Region]) -> list[tuple[Region, int]]:
    """Each region with its own time: its duration less that of the regions directly inside it."""
    own: list[tuple[Region, int]] = []
    open_: list[list[int]] = []  # (end, index into own), innermost last
    for region in sorted(regions, key=lambda region: (region[1], -region[2])):
        start_ns, end_ns = itemgetter(1, 2)(region)
        while open_ and open_[-1][0] <= start_ns:
            open_.pop()
        if open_:
            outer_end_ns, outer = open_[-1]
            inside_ns = min(end_ns, outer_end_ns) - start_ns
            own[outer] = (own[outer][0], own[outer][1] - inside_ns)
        own.append((region, end_ns - start_ns))
        open_.append([end_ns, len(own) - 1])
    return own
