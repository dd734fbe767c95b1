"""A run, all sections of it, from one snapshot of its store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepmeter.analysis import alerts, readings, untrained
from stepmeter.analysis.diagnosis.model import Diagnosis
from stepmeter.analysis.diagnosis.primary import primary_diagnosis
from stepmeter.analysis.energy.analysis import analyze_energy
from stepmeter.analysis.energy.model import TrainingEnergy
from stepmeter.analysis.energy.rules import normal
from stepmeter.analysis.energy.section import section_facts
from stepmeter.analysis.memory.analysis import analyze_step_memory
from stepmeter.analysis.process.analysis import analyze_processes
from stepmeter.analysis.section import SectionAnalysis
from stepmeter.analysis.step_time.pipeline import StepTimePipeline, StepTimeRequest
from stepmeter.analysis.system.analysis import analyze_system
from stepmeter.errors import CheckFailedError

if TYPE_CHECKING:
    from stepmeter.analysis.alerts import AlertedRule
    from stepmeter.analysis.diagnosis.primary import PrimaryDiagnosis
    from stepmeter.analysis.step_time.pipeline import StepTimeAnalysis
    from stepmeter.analysis.step_time.source import StepTimeRepositorySnapshot
    from stepmeter.analysis.untrained import Untrained
    from stepmeter.store.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """All that was found out about a run.

    Attributes:
        step_time: Where the steps' time went.
        system: Hosts and their GPUs.
        process: Training processes.
        step_memory: Peak memory of steps.
        energy: What steps cost.
        primary: The one finding about performance that sums the run up.
        alerts: Rules that fired, the gravest first.
        untrained: What a run without steps holds instead; None where there are steps.
    """

    step_time: StepTimeAnalysis
    system: SectionAnalysis
    process: SectionAnalysis
    step_memory: SectionAnalysis
    energy: SectionAnalysis
    primary: PrimaryDiagnosis
    alerts: tuple[AlertedRule, ...] = ()
    untrained: Untrained | None = None

    @property
    def readings(self) -> tuple[SectionAnalysis, ...]:
        """The sections beside step time, in the order of the summary."""
        return (self.system, self.process, self.step_memory, self.energy)


def analyze_run(source: Snapshot) -> RunAnalysis:
    """Analyze a run, which may still be going on.

    Args:
        source: One snapshot of its store.

    Returns:
        All sections; those without data say so.

    Raises:
        StoreError: The run can't be read.
    """
    step_time = StepTimePipeline().run(StepTimeRequest(source, "summary"))
    instead = None if step_time.window.coverage.recorded_steps else untrained.load(source)
    if instead is not None:
        step_time = replace(step_time, diagnosis=untrained.told(step_time.diagnosis, instead))
    read = readings.load(source, step_time.snapshot)
    memory = analyze_step_memory(source, step_time.window, step_time.snapshot.cursor.attempt)
    system = analyze_system(read, has_gpu=memory.facts.has_gpu)
    return RunAnalysis(
        step_time=step_time,
        system=system,
        process=analyze_processes(read, step_time.snapshot.identities, memory.facts),
        step_memory=memory,
        energy=_energy(source, step_time.snapshot),
        primary=primary_diagnosis(step_time.diagnosis, system.diagnosis),
        alerts=alerts.load(source),
        untrained=instead,
    )


def _energy(source: Snapshot, steps: StepTimeRepositorySnapshot) -> SectionAnalysis:
    """A balance that does not come out right says so in its own section and leaves the others be."""
    try:
        found = analyze_energy(source, steps.cursor.attempt)
    except CheckFailedError as error:
        nothing = TrainingEnergy(reason=str(error))
        return SectionAnalysis(section_facts(nothing, {}), Diagnosis((normal.issue(nothing),)))
    return SectionAnalysis(section_facts(found.facts, steps.identities), found.diagnosis)
