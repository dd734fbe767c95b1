"""NO_CLEAR_PERFORMANCE_BOTTLENECK, LOW_GPU_UTILIZATION_UNEXPLAINED, INSUFFICIENT_STEP_TIME_DATA: a run summed up.

The primary diagnosis is the first finding about step time. Where step time is balanced it is
NO_CLEAR_PERFORMANCE_BOTTLENECK, or LOW_GPU_UTILIZATION_UNEXPLAINED when the GPUs were nevertheless idle for 30 % of
the time or more: then something is missing that no phase and no rank shows. Where step time says NO_DATA, WARMUP or
INCOMPLETE_DATA it is INSUFFICIENT_STEP_TIME_DATA. Findings about memory, temperature or power stay in their
sections, for they do not answer where the time went.
*Why*: one line for people in a hurry, and one name for programs.
*Next*: for an unexplained idle GPU, torch.profiler over some steps: kernels too short to fill the device, waits for
the host, work between steps that no phase covers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from stepmeter.analysis.diagnosis.model import Evidence, Rule, Severity

if TYPE_CHECKING:
    from stepmeter.analysis.diagnosis.model import Diagnosis, Issue

EvidenceType = Literal[
    "phase_share", "rank_comparison", "utilization_fallback", "no_clear_bottleneck", "insufficient_data"
]

INSUFFICIENT = frozenset({"NO_DATA", "WARMUP", "INCOMPLETE_DATA"})
IDLE_KINDS = frozenset({"LOW_GPU_UTILIZATION", "MODERATE_GPU_UTILIZATION"})
RANK_KINDS = frozenset({"SLOW_RANK", "RANK_SILENT", "BACKWARD_SKEW_HIDDEN"})


@dataclass(frozen=True, slots=True)
class PrimaryDiagnosis:
    """What a run is summed up by.

    Attributes:
        kind: Stable name; that of the first step-time finding, or one of the two general ones.
        status: The same for people.
        severity: How much it matters.
        section: Section that it comes from.
        summary: Why, with numbers.
        action: The first thing to try.
        evidence_type: What kind of evidence there is.
        evidence: The numbers.
    """

    kind: str
    status: str
    severity: Severity
    section: str
    summary: str
    action: str
    evidence_type: EvidenceType
    evidence: Evidence = field(default_factory=dict)


def primary_diagnosis(step_time: Diagnosis, system: Diagnosis | None = None) -> PrimaryDiagnosis:
    """Choose the finding that sums a run up.

    Findings about health (memory, temperature) stay in their sections: a hot device is no answer to where the time
    went.

    Args:
        step_time: The findings about step time.
        system: The findings about hosts and GPUs, whose utilization tells that something is missing where step time
            is balanced.

    Returns:
        The first finding about step time, or a general one where they are balanced or insufficient.
    """
    issue = step_time.primary
    idle = next((item for item in system.issues if item.kind in IDLE_KINDS), None) if system else None
    if issue.kind == "BALANCED" and idle is not None:
        return _unexplained(idle)
    kind, status = _name(issue)
    return PrimaryDiagnosis(
        kind=kind,
        status=status,
        severity=issue.severity,
        section="step_time",
        summary=issue.summary,
        action=issue.action,
        evidence_type=_evidence_type(issue),
        evidence=issue.evidence,
    )


def _unexplained(idle: Issue) -> PrimaryDiagnosis:
    return PrimaryDiagnosis(
        kind="LOW_GPU_UTILIZATION_UNEXPLAINED",
        status="LOW GPU UTILIZATION, UNEXPLAINED",
        severity="info",
        section="system",
        summary=f"{idle.summary} No phase of the step and no rank explains it.",
        action=(
            "Look inside the step with torch.profiler: kernels too short to fill the device, waits for the host, work "
            "between steps that no phase covers."
        ),
        evidence_type="utilization_fallback",
        evidence=idle.evidence,
    )


def _name(issue: Issue) -> tuple[str, str]:
    if issue.kind in INSUFFICIENT:
        return "INSUFFICIENT_STEP_TIME_DATA", "INSUFFICIENT STEP TIME DATA"
    if issue.kind == "BALANCED":
        return "NO_CLEAR_PERFORMANCE_BOTTLENECK", "NO CLEAR PERFORMANCE BOTTLENECK"
    return issue.kind, issue.status


def _evidence_type(issue: Issue) -> EvidenceType:
    if issue.kind in INSUFFICIENT or issue.kind == "INCOMPLETE_RECORD":
        return "insufficient_data"
    if issue.kind == "BALANCED":
        return "no_clear_bottleneck"
    return "rank_comparison" if issue.is_straggler or issue.kind in RANK_KINDS else "phase_share"


RULE: Rule[None] = Rule(
    ("NO_CLEAR_PERFORMANCE_BOTTLENECK", "LOW_GPU_UTILIZATION_UNEXPLAINED", "INSUFFICIENT_STEP_TIME_DATA"),
    lambda _: None,
    __doc__,
)
