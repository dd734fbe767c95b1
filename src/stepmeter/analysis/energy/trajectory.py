"""A trajectory: an agent's steps with their energy and tokens, and what is left over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from stepmeter.analysis.energy.attribution import DeviceReadings
from stepmeter.analysis.energy.counters import PhaseShare, ServerCounters
from stepmeter.analysis.energy.model import Bases, Estimate
from stepmeter.analysis.energy.sharing import union
from stepmeter.analysis.energy.steps import TrajectoryStep

DropReason = Literal["outside_run_window", "overlaps_preceding_step", "encloses_other_steps"]
AnchorSource = Literal["run", "first_device_sample"]
ApportionBy = Literal["equal", "tokens", "device_time"]

CLOCK_ASSUMPTION: Final = (
    "steps and samples are taken to be stamped by clocks of one host; nothing here corrects between hosts"
)


@dataclass(frozen=True, slots=True)
class Sources:
    """What a trajectory is joined with.

    Attributes:
        devices: Readings of each device.
        counters: Of the inference server.
        device_samples: Power samples of all devices together.
        anchor_unix_ns: When the run's clock was anchored, Unix time in ns; None when the run is foreign.
        lacks_anchor: Whether the samples are our own and came without the anchor that they should have.
        zones: CPU packages and memory.
    """

    devices: tuple[DeviceReadings, ...]
    counters: ServerCounters = field(default_factory=ServerCounters)
    device_samples: int = 0
    anchor_unix_ns: int | None = None
    lacks_anchor: bool = False
    zones: tuple[DeviceReadings, ...] = ()


@dataclass(frozen=True, slots=True)
class StepEnergy:
    """One step: the strict figure, and the estimate beside it.

    Both are None where the trajectory is withheld. `host` is what CPUs and memory took, None where that was not read.
    """

    step: TrajectoryStep
    start_elapsed_ns: int
    end_elapsed_ns: int
    samples_in_window: int
    energy_mj: int | None
    generation_tokens_delta: int | None
    prompt_tokens_delta: int | None
    cache_hits_delta: int | None
    cache_queries_delta: int | None
    prefill_time_ns_delta: int | None
    decode_time_ns_delta: int | None
    estimate: Estimate | None
    host: Estimate | None = None

    @property
    def tokens_per_joule(self) -> float | None:
        """None for tools, and without tokens or energy."""
        if self.step.kind != "llm_call" or not self.generation_tokens_delta or not self.energy_mj:
            return None
        return self.generation_tokens_delta / (self.energy_mj / 1000)

    @property
    def cache_hit_rate(self) -> float | None:
        """None without queries."""
        if not self.cache_queries_delta or self.cache_hits_delta is None:
            return None
        return self.cache_hits_delta / self.cache_queries_delta


@dataclass(frozen=True, slots=True)
class DroppedStep:
    """A step that has no figure."""

    step_id: int
    reason: DropReason


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A trajectory's energy, on the basis of integrated power.

    Attributes:
        steps: In the order of their starts.
        dropped_steps: Those without a figure.
        total_energy_mj: Of the whole run.
        run_duration_ns: From the first device sample to the last.
        anchor_unix_ns: What elapsed times count from.
        anchor_source: Whose moment that is.
        counters: Of the inference server.
        total_generation_tokens: Over all readings; None when never read.
        bases: Of each device, by UUID.
        phase_share: Of the whole run; None without the server's counters.
        is_measurement: Whether nothing overlapped and no one else was seen on the devices.
        apportioned_by: How steps that overlap share their energy; None where later ones were dropped.
        host_total_mj: Energy of CPUs and memory while they were read; None where they were not.
    """

    steps: tuple[StepEnergy, ...]
    dropped_steps: tuple[DroppedStep, ...]
    total_energy_mj: int
    run_duration_ns: int
    anchor_unix_ns: int
    anchor_source: AnchorSource
    counters: ServerCounters
    total_generation_tokens: int | None
    bases: tuple[tuple[str, Bases], ...]
    phase_share: PhaseShare | None
    is_measurement: bool
    apportioned_by: ApportionBy | None = None
    host_total_mj: int | None = None

    def energy_of(self, kind: str) -> int:
        """Energy of all steps of a kind, in mJ."""
        return sum(one.energy_mj or 0 for one in self.steps if one.step.kind == kind)

    @property
    def unattributed_energy_mj(self) -> int:
        """What no published step has."""
        return self.total_energy_mj - sum(one.energy_mj or 0 for one in self.steps)

    @property
    def unattributed_duration_ns(self) -> int:
        """Time of the run that no step covers."""
        start_ns = np.array([one.step.start_unix_ns for one in self.steps], dtype=np.int64)
        end_ns = np.array([one.step.end_unix_ns for one in self.steps], dtype=np.int64)
        windows = union(start_ns, end_ns)
        return self.run_duration_ns - int((windows.end_ns - windows.start_ns).sum())

    @property
    def tokens_per_joule(self) -> float | None:
        """Of the whole run; None without tokens or energy."""
        if not self.total_generation_tokens or not self.total_energy_mj:
            return None
        return self.total_generation_tokens / (self.total_energy_mj / 1000)


@dataclass(frozen=True, slots=True)
class Withheld:
    """There is no energy of devices; times, tokens and what CPUs took are there all the same.

    Attributes:
        reason: `no_steps`, `no_device_timeline`, `fewer_than_two_samples` or `no_anchor`.
        steps: In the order of their starts, without energy.
        host_total_mj: Energy of CPUs and memory while they were read; None where they were not.
    """

    reason: str
    steps: tuple[StepEnergy, ...] = ()
    host_total_mj: int | None = None
