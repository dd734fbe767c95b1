"""What energy is given as: a figure, the bounds it lies between and how it was found; absent with a reason, never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from stepmeter.analysis.energy.exact import Ints

Method = Literal["counter_exact", "counter_interpolated", "counter_fit", "power_integral", "unavailable"]
METHODS: tuple[Method, ...] = (
    "counter_exact",
    "counter_interpolated",
    "counter_fit",
    "power_integral",
    "unavailable",
)
"""From the best to none: both edges on ticks of the counter; shared out within a tick evenly, or by what steps and the
time between them were found to draw; integrated from power samples; no reading."""

Scope = Literal["gpu", "module", "gpu_shared", "host"]
DeviceKind = Literal["gpu", "cpu", "memory"]

GAIN_ERROR_SHARE = 0.05
"""Systematic error of a board's own sensor, beyond all bounds here; it cancels in comparisons on one board.

Source: Yang, Adamek and Armour, "Part-time Power Measurements", SC'24: about ±5 % from board to board."""

NO_RAPL = "no RAPL counter was read; Linux lets only root read /sys/class/powercap/*/energy_uj"
"""Why there is no energy of CPUs."""

BASES_DIFFER_SHARE = 0.1
"""Counter and integrated power further apart than this are a finding.

Source: zeus issue 181 and Dauner et al., HotCarbon'26: stale or partial readings show as tens of percent."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Energy of one window.

    Attributes:
        value_mj: Best estimate in mJ; None when unavailable.
        lower_mj: It is not less; None when unknown.
        upper_mj: It is not more; None when unknown.
        method: How it was found.
        ticks: Ticks of the counter inside the window.
        update_period_ns: Median time between ticks; None without a counter.
        scope: Whose energy it is: of a GPU, of a module of GPU and CPU, of a GPU that others use as well, or of a
            host's CPUs and memory.
        reason: Why it is unavailable; None when it is there.
    """

    value_mj: int | None
    lower_mj: int | None
    upper_mj: int | None
    method: Method
    ticks: int = 0
    update_period_ns: int | None = None
    scope: Scope = "gpu"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Estimates:
    """Energies of many windows, as columns.

    Attributes:
        value_mj: Best estimates in mJ, -1 where unavailable.
        lower_mj: Lower bounds in mJ, -1 where unavailable.
        upper_mj: Upper bounds in mJ, -1 where unavailable.
        method: Indices into `METHODS`.
        ticks: Ticks of the counter inside each window.
    """

    value_mj: Ints
    lower_mj: Ints
    upper_mj: Ints
    method: Ints
    ticks: Ints

    def __len__(self) -> int:
        return len(self.value_mj)

    def one(self, index: int, update_period_ns: int | None, reason: str | None, scope: Scope = "gpu") -> Estimate:
        """One of them.

        Args:
            index: Which.
            update_period_ns: Of the device's counter.
            reason: Why it is unavailable, where it is.
            scope: Whose energy it is.

        Returns:
            The estimate.
        """
        method = METHODS[int(self.method[index])]
        if method == "unavailable":
            return Estimate(None, None, None, method, 0, update_period_ns, scope, reason)
        figures = (int(self.value_mj[index]), int(self.lower_mj[index]), int(self.upper_mj[index]))
        return Estimate(*figures, method, int(self.ticks[index]), update_period_ns, scope)


@dataclass(frozen=True, slots=True)
class Bases:
    """One device's energy on both bases, over the same time; they are never mixed.

    Attributes:
        counter_mj: By the energy counter; None without one.
        power_integral_mj: By integrated power; None without samples.
    """

    counter_mj: int | None
    power_integral_mj: int | None

    @property
    def ratio(self) -> float | None:
        """Integral over counter; None unless both are there."""
        if not self.counter_mj or self.power_integral_mj is None:
            return None
        return self.power_integral_mj / self.counter_mj

    @property
    def differ(self) -> bool:
        """Whether they are further apart than `BASES_DIFFER_SHARE`."""
        return self.ratio is not None and abs(self.ratio - 1) > BASES_DIFFER_SHARE


@dataclass(frozen=True, slots=True)
class DeviceEnergy:
    """Where one device's energy went.

    Attributes:
        hw_id: UUID of the device.
        bases: Its energy on both bases.
        total_mj: On the basis of the steps' estimates, from its first reading to its last.
        steps_mj: In steps.
        idle_mj: In nobody's step: `total_mj - steps_mj`.
        duration_ns: From its first reading to its last.
        idle_ns: Of that, in nobody's step.
        update_period_ns: Median time between ticks; None without a counter.
        resets: How often the counter went backwards.
        ranks: Ranks that worked on it.
        other_processes: Whether a process of nobody we know of used it.
        throttled_share: Share of readings at which power or heat held its clocks down; None when nobody looked.
        is_instance: Whether ranks worked on MIG instances of it.
        kind: What it is; `cpu` is a package of cores.
        is_module: Whether its counter is of the whole module, with its CPU.
    """

    hw_id: str
    bases: Bases
    total_mj: int
    steps_mj: int
    idle_mj: int
    duration_ns: int
    idle_ns: int
    update_period_ns: int | None
    resets: int = 0
    ranks: tuple[int, ...] = ()
    other_processes: bool = False
    throttled_share: float | None = None
    is_instance: bool = False
    kind: DeviceKind = "gpu"
    is_module: bool = False

    @property
    def scope(self) -> Scope:
        """Whether the device is one rank's alone."""
        if self.kind != "gpu":
            return "host"
        if len(self.ranks) > 1 or self.other_processes or self.is_instance:
            return "gpu_shared"
        return "module" if self.is_module else "gpu"


@dataclass(frozen=True, slots=True)
class RankEnergy:
    """Energy of one rank's steps; of a shared device an apportionment.

    Attributes:
        rank: Global rank.
        hw_id: UUID of its device, or the name of its host.
        steps: Steps with an estimate.
        unavailable: Steps without one.
        total_mj: Sum over its steps.
        lower_mj: It is not less.
        upper_mj: It is not more.
        median_mj: Median over steps, without those of warm-up.
        half_width_mj: Median of half the distance between a step's bounds.
        median_ns: Median duration of those steps, in ns.
        samples: Samples in those steps; None when not known.
        tokens: Tokens in those steps; None when not known.
        methods: How many steps by each method.
        median_interval_mj: 95 % interval of the median, from the order of the steps; None with fewer than 6 of them.
        phases_mj: Apportionment of `total_mj` by the phases' time, by phase; `other` is what no phase covers.
        clock: Clock of the phases' time.
    """

    rank: int
    hw_id: str
    steps: int
    unavailable: int
    total_mj: int
    lower_mj: int
    upper_mj: int
    median_mj: float | None
    half_width_mj: float | None
    samples: int | None
    tokens: int | None
    median_ns: int = 0
    methods: Mapping[Method, int] = field(default_factory=dict)
    phases_mj: Mapping[str, int] = field(default_factory=dict)
    clock: Literal["gpu", "cpu"] = "cpu"
    median_interval_mj: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class TrainingEnergy:
    """Energy of a run's steps.

    Attributes:
        devices: GPUs, by UUID.
        ranks: Energy of GPUs by rank.
        reason: Why there is no GPU's; None when there is.
        host_devices: CPU packages and memory.
        host_ranks: Energy of those by rank.
        host_reason: Why there is none of those; None when there is.
    """

    devices: tuple[DeviceEnergy, ...] = ()
    ranks: tuple[RankEnergy, ...] = ()
    reason: str | None = None
    host_devices: tuple[DeviceEnergy, ...] = ()
    host_ranks: tuple[RankEnergy, ...] = ()
    host_reason: str | None = None

    @property
    def host_mj_per_step(self) -> float | None:
        """Energy of CPUs and memory, mean over all ranks' steps; None without any."""
        return _ratio(self.host_ranks, [rank.steps for rank in self.host_ranks])

    @property
    def mj_per_step(self) -> float | None:
        """Mean over all ranks' steps; None without any."""
        return _ratio(self.ranks, [rank.steps for rank in self.ranks])

    @property
    def mj_per_sample(self) -> float | None:
        """Over ranks that know their samples."""
        known = [rank for rank in self.ranks if rank.samples]
        return _ratio(known, [rank.samples or 0 for rank in known])

    @property
    def mj_per_token(self) -> float | None:
        """Over ranks that know their tokens."""
        known = [rank for rank in self.ranks if rank.tokens]
        return _ratio(known, [rank.tokens or 0 for rank in known])

    @property
    def idle_share(self) -> float | None:
        """Share of the devices' energy that was in nobody's step; None without readings."""
        total_mj = sum(device.total_mj for device in self.devices)
        return sum(device.idle_mj for device in self.devices) / total_mj if total_mj else None


def _ratio(ranks: list[RankEnergy] | tuple[RankEnergy, ...], counts: list[int]) -> float | None:
    return sum(rank.total_mj for rank in ranks) / sum(counts) if sum(counts) else None
