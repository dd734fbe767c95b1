"""The one finding that sums a run up."""

from __future__ import annotations

import pytest
from tests.support.step_time import RunBuilder

from stepmeter.report.summary import summarize


def primary_of(builder, one_run):
    return one_run.analyze(builder).primary


def idle(builder, share=0.1):
    builder.read("hw.gpu.utilization", share, share, hw_id="GPU-0", hw_type="gpu")
    return builder


@pytest.mark.parametrize(
    ("share", "kind", "evidence_type"),
    [
        (0.10, "LOW_GPU_UTILIZATION_UNEXPLAINED", "utilization_fallback"),
        (0.70, "LOW_GPU_UTILIZATION_UNEXPLAINED", "utilization_fallback"),
        (0.71, "NO_CLEAR_PERFORMANCE_BOTTLENECK", "no_clear_bottleneck"),
    ],
)
def test_an_idle_gpu_that_step_time_does_not_explain_is_said(one_run, share, kind, evidence_type):
    """Balanced steps on a GPU that is busy for 70 % of the time or less are no clear case."""
    primary = primary_of(idle(RunBuilder(gpu=True).rank(0, range(1, 51)), share), one_run)

    assert (primary.kind, primary.evidence_type) == (kind, evidence_type)


def test_a_finding_about_step_time_explains_an_idle_gpu(one_run):
    """Input wait comes first, and utilization stays in its section."""
    primary = primary_of(idle(RunBuilder(gpu=True).rank(0, range(1, 51), input_wait=60.0)), one_run)

    assert (primary.kind, primary.section, primary.evidence_type) == ("INPUT_BOUND", "step_time", "phase_share")


def test_too_few_steps_are_not_explained_by_an_idle_gpu(one_run):
    """One step says nothing, however idle the GPU was."""
    primary = primary_of(idle(RunBuilder(gpu=True).rank(0, [1])), one_run)

    assert (primary.kind, primary.evidence_type) == ("INSUFFICIENT_STEP_TIME_DATA", "insufficient_data")


def test_findings_about_health_stay_in_their_sections(tmp_path):
    """A hot device is no answer to where the time went; the text tells it after the verdict."""
    builder = RunBuilder(gpu=True).rank(0, range(1, 51), input_wait=60.0)
    builder.read("hw.temperature", 95.0, hw_id="GPU-0", hw_type="gpu")

    summary = summarize(builder.write(tmp_path))

    assert summary.document["primary_diagnosis"]["kind"] == "INPUT_BOUND"
    assert summary.document["system"]["diagnosis"]["kind"] == "HIGH_GPU_TEMPERATURE"
    assert "\nHIGH GPU TEMPERATURE  critical\nwhy   GPU GPU-0 of node 0 reached 95 degrees" in summary.text()


def test_an_unexplained_idle_gpu_leads_the_text(tmp_path):
    """Its status, its reason, what to try, and then that step time itself is balanced."""
    text = summarize(idle(RunBuilder(gpu=True).rank(0, range(1, 51))).write(tmp_path)).text()

    assert text.startswith("LOW GPU UTILIZATION, UNEXPLAINED  info\nwhy   The GPUs of node 0 ran kernels for 10.0 %")
    assert "\nBALANCED  info\n" in text
