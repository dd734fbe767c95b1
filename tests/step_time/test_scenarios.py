from __future__ import annotations

import functools

import pytest
from tests.step_time.scenarios import SCENARIOS
from tests.support.step_otlp import send

from stepmeter.analysis.step_time.live import LiveStepTimeSession
from stepmeter.analysis.step_time.model import SUMMARY_WINDOW_STEPS
from stepmeter.analysis.step_time.pipeline import StepTimePipeline, StepTimeRequest, analyze
from stepmeter.store.reader import open_run

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Every scenario as a store, made when first asked for."""
    directory = tmp_path_factory.mktemp("runs")
    return functools.cache(lambda name: BY_NAME[name].build().write(directory, run_id=name, name=name))


def from_rows(name, runs):
    """Straight from model rows."""
    return analyze(BY_NAME[name].build().snapshot(), SUMMARY_WINDOW_STEPS)


def from_store(name, runs):
    """Through a store, as the summary reads it."""
    with open_run(runs(name)) as run:
        return StepTimePipeline().run(StepTimeRequest(run.snapshot(), "summary"))


def live_from_store(name, runs):
    """Through a store, as live views read it."""
    with LiveStepTimeSession(runs(name)) as session:
        return session.refresh().analysis


def through_otlp(name, runs):
    """As OTLP through the processor into a store, as the summary reads it."""
    directory = runs(name).parent / "sent"
    directory.mkdir(exist_ok=True)
    with open_run(send(BY_NAME[name].build(), directory, f"{name}-sent")) as run:
        return StepTimePipeline().run(StepTimeRequest(run.snapshot(), "summary"))


WAYS = [from_rows, from_store, live_from_store, through_otlp]


@pytest.fixture(scope="module", params=WAYS, ids=lambda way: way.__name__)
def analysis_of(request, runs):
    """The analysis of a scenario, got in one of these ways."""
    return functools.cache(lambda name: request.param(name, runs))


@pytest.mark.parametrize("name", BY_NAME)
def test_each_scenario_gives_its_issues_in_order(name, analysis_of):
    """Kind, severity, score and ranks of every issue are those of the contract, however the rows came."""
    analysis = analysis_of(name)

    found = [(issue.kind, issue.severity, issue.score, issue.ranks) for issue in analysis.diagnosis.issues]

    expected = [
        (kind, severity, score and pytest.approx(score, abs=5e-6), ranks)
        for kind, severity, score, ranks in BY_NAME[name].issues
    ]
    assert expected == found


@pytest.mark.parametrize("name", BY_NAME)
def test_each_scenario_gives_its_window(name, analysis_of):
    """First and last step, number of steps and clock are those of the contract."""
    window = analysis_of(name).window

    assert BY_NAME[name].steps == (window.steps[0], window.steps[-1], len(window.steps))
    assert BY_NAME[name].clock == window.clock


def test_both_clocks_are_kept_beside_the_selected_one(analysis_of):
    """On the GPU clock a step takes 100 ms, on the CPU clock 200, and the loader's own 10 are evidence."""
    average = analysis_of("complete_gpu").window.facts(0).average

    assert (
        average.step_time_ms,
        average.step_time_gpu_ms,
        average.step_time_cpu_ms,
        average.dataloader_fetch_cpu_ms,
    ) == (100.0, 100.0, 200.0, 10.0)


@pytest.mark.parametrize("name", ["sparse_missing_forward", "intermittent_metrics"])
def test_a_signal_missing_on_one_step_is_unavailable_for_its_rank(name, analysis_of):
    """Forward, compute and residual of rank 1 are unknown; the others are known."""
    average = analysis_of(name).window.facts(1).average

    assert (average.forward_ms, average.compute_ms, average.residual_ms) == (None, None, None)
    assert average.backward_ms == 45.0


def test_a_measured_zero_is_measured(analysis_of):
    """A forward of 0.0 takes part in compute (55) and residual (35)."""
    average = analysis_of("measured_zero_forward").window.facts(1).average

    assert (average.forward_ms, average.compute_ms, average.residual_ms) == (0.0, 55.0, 35.0)


def test_a_single_rank_has_no_skew(analysis_of):
    """There is nothing to compare it with."""
    window = analysis_of("single_rank_cpu").window

    assert all(metric.skew is None for metric in window.metrics.values())


def test_work_done_now_and_then_counts_as_zero_on_other_steps(analysis_of):
    """An optimizer of 10 ms on every fourth step averages 2.5, an h2d of 5 on every second one too."""
    average = analysis_of("intermittent_metrics").window.facts(0).average

    assert (average.optimizer_ms, average.h2d_ms, average.compute_ms, average.residual_ms) == (2.5, 2.5, 77.5, 15.0)


def test_steps_that_one_rank_lacks_are_counted_in_coverage(analysis_of):
    """Of 24 steps 20 are used, and rank 1 has 4 gaps."""
    coverage = analysis_of("rank_missing_steps").window.coverage

    assert (coverage.expected_steps, coverage.steps_used, coverage.missing_steps) == (24, 20, {1: 4})


def test_the_ddp_straggler_explains_its_victim(analysis_of):
    """Rank 0 waits 100 ms for input while rank 1 waits 100 ms for it in backward."""
    evidence = analysis_of("ddp_rank_straggler").diagnosis.primary.evidence

    assert (
        evidence["component"],
        evidence["culprit_rank"],
        evidence["victim_rank"],
        evidence["cost_ms"],
        evidence["hidden_excess_ms"],
    ) == ("input_wait", 0, 1, 100.0, 100.0)
    assert evidence["component_coverage"]["input_wait"] == 1.0


def test_the_fsdp_straggler_is_seen_in_forward_and_backward(analysis_of):
    """Input explains 100 of the 120 ms by which the ranks differ in forward and backward."""
    evidence = analysis_of("fsdp_rank_straggler").diagnosis.primary.evidence

    assert (
        evidence["visible_metric"],
        evidence["visible_culprit_ms"],
        evidence["visible_victim_ms"],
    ) == ("forward_backward", 40.0, 160.0)
    assert evidence["component_coverage"]["input_wait"] == pytest.approx(0.8333, abs=1e-4)


def test_jitter_gives_the_known_averages(analysis_of):
    """Seeded jitter makes the same steps everywhere, so the averages are known to four digits."""
    window = analysis_of("jittered_ddp").window

    steps = [facts.average.step_time_ms for facts in window.rank_facts]
    residuals = [facts.average.residual_ms for facts in window.rank_facts]
    assert pytest.approx(steps, abs=1e-4) == [100.1919, 101.1140]
    assert pytest.approx(residuals, abs=1e-4) == [5.3443, 0.2286]
    assert window.shares["compute_ms"].mean == pytest.approx(0.92122, abs=1e-5)


def test_forward_missing_everywhere_names_the_signal(analysis_of):
    """The missing signal is forward, measured on 0 of 2 ranks."""
    evidence = analysis_of("forward_missing_everywhere").diagnosis.primary.evidence

    assert evidence == {"missing_signals": ["forward"], "signal_coverage": {"forward": "0/2"}}


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_where_a_batch_is_cut_changes_nothing(tmp_path, batch):
    """One span a request or all in one: the same window and the same findings."""
    with open_run(send(BY_NAME["jittered_ddp"].build(), tmp_path, "run", batch)) as run:
        sent = StepTimePipeline().run(StepTimeRequest(run.snapshot(), "summary"))

    direct = analyze(BY_NAME["jittered_ddp"].build().snapshot(), SUMMARY_WINDOW_STEPS)
    assert [issue.kind for issue in sent.diagnosis.issues] == [issue.kind for issue in direct.diagnosis.issues]
    for mine, theirs in zip(sent.window.rank_facts, direct.window.rank_facts, strict=True):
        assert mine.average.step_time_ms == pytest.approx(theirs.average.step_time_ms, abs=1e-6)
