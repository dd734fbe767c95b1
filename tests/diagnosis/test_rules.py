"""Each rule on both sides of its threshold, and with too few steps."""

from __future__ import annotations

import pytest
from tests.support.step_time import RunBuilder

from stepmeter.analysis.diagnosis.engine import order
from stepmeter.analysis.diagnosis.model import Issue
from stepmeter.analysis.diagnosis.rules import CONCLUSIONS, GATES, RULES
from stepmeter.analysis.step_time.pipeline import analyze

STEPS = range(1, 25)


def found_in(builder: RunBuilder) -> dict[str, Issue]:
    return {issue.kind: issue for issue in analyze(builder.snapshot(), 10_000).diagnosis.issues}


def severity_of(kind: str, builder: RunBuilder) -> str | None:
    issue = found_in(builder).get(kind)
    return issue and issue.severity


def input_bound(numbers, wait):
    return RunBuilder().rank(0, numbers, input_wait=wait, traced=100.0 - wait, forward=100.0 - wait - 65.0)


@pytest.mark.parametrize(("wait", "severity"), [(9.9, None), (10.0, "warn"), (19.9, "warn"), (20.0, "crit")])
def test_input_bound_begins_at_a_tenth_of_the_step(wait, severity):
    """10 ms of 100 are a warning, 20 are critical, 9.9 are nothing."""
    assert severity_of("INPUT_BOUND", input_bound(STEPS, wait)) == severity


@pytest.mark.parametrize(("n_steps", "severity"), [(1, None), (2, "warn"), (19, "warn"), (20, "crit")])
def test_critical_needs_twenty_steps(n_steps, severity):
    """One step is warm-up, up to 19 give at most a warning."""
    builder = input_bound(range(1, n_steps + 1), 30.0)

    assert severity_of("INPUT_BOUND", builder) == severity


def test_fsdp_is_capped_at_a_warning():
    """The same input wait that is critical under ddp is a warning under fsdp."""
    builder = input_bound(STEPS, 30.0)
    builder.strategy = "fsdp"

    assert severity_of("INPUT_BOUND", builder) == "warn"


def test_an_unknown_strategy_counts_as_ddp():
    """Without a strategy a straggler is looked for in backward."""
    builder = RunBuilder(strategy=None)
    builder.rank(0, STEPS, input_wait=55.0, backward=45.0).rank(1, STEPS, backward=95.0, traced=145.0)

    assert found_in(builder)["INPUT_STRAGGLER"].evidence["visible_metric"] == "backward"


@pytest.mark.parametrize(("h2d", "severity"), [(9.9, None), (10.0, "warn"), (20.0, "crit")])
def test_h2d_bound_begins_at_a_tenth_of_the_step(h2d, severity):
    """On the GPU clock 10 ms of 100 are a warning, 20 are critical."""
    builder = RunBuilder(gpu=True).rank(0, STEPS, h2d=h2d, forward=35.0 - h2d)

    assert severity_of("H2D_BOUND", builder) == severity


def test_h2d_is_not_judged_on_the_cpu_clock():
    """The CPU sees when a copy was asked for, not how long it took."""
    assert severity_of("H2D_BOUND", RunBuilder().rank(0, STEPS, h2d=25.0, forward=10.0)) is None


def test_no_transfers_are_not_missing():
    """A run without any h2d is balanced, not incomplete."""
    builder = RunBuilder(gpu=True).rank(0, STEPS, h2d=None, traced=90.0)

    assert list(found_in(builder)) == ["BALANCED"]


@pytest.mark.parametrize(("residual", "severity"), [(9.9, None), (10.0, "warn"), (20.0, "crit")])
def test_residual_heavy_begins_at_a_tenth_of_the_step(residual, severity):
    """10 ms of 100 outside all phases are a warning, 20 are critical."""
    builder = RunBuilder().rank(0, STEPS, forward=35.0 - residual)

    assert severity_of("RESIDUAL_HEAVY", builder) == severity


@pytest.mark.parametrize(("forward", "fires"), [(34.9, False), (35.0, True)])
def test_compute_bound_begins_at_nine_tenths_of_the_step(forward, fires):
    """90 of 100 ms in compute are information; 89.9 are not."""
    builder = RunBuilder().rank(0, STEPS, h2d=0.0, forward=forward)

    assert ("COMPUTE_BOUND" in found_in(builder)) is fires


@pytest.mark.parametrize(("cost", "severity"), [(9.9, None), (10.0, "warn"), (20.0, "crit")])
def test_a_straggler_begins_at_a_tenth_of_its_victims_step(cost, severity):
    """A rank that fetches 10 ms longer, for which another waits 10 ms of a step of 100."""
    builder = RunBuilder().rank(0, STEPS, input_wait=cost, backward=40.0, h2d=0.0, traced=100.0 - cost, forward=20.0)
    builder.rank(1, STEPS, input_wait=0.0, backward=40.0 + cost, h2d=0.0, traced=100.0, forward=20.0)

    assert severity_of("INPUT_STRAGGLER", builder) == severity


def late_rank(**phases):
    """Rank 0 comes 50 ms late out of a step of 150 ms; rank 1 waits for it in backward."""
    return RunBuilder().rank(0, STEPS, traced=145.0, **phases).rank(1, STEPS, backward=95.0, traced=145.0)


def test_the_cause_that_explains_most_names_the_straggler():
    """50 ms more of transfers, of forward, or of nothing that was measured."""
    assert {"H2D_STRAGGLER"} <= set(found_in(late_rank(h2d=55.0)))
    assert {"COMPUTE_STRAGGLER"} <= set(found_in(late_rank(forward=80.0)))
    assert found_in(late_rank())["STRAGGLER"].evidence["component"] == "sync_or_unattributed"


def test_a_cause_must_explain_four_fifths():
    """39 of 50 ms are too little to name a cause, 40 are enough."""
    assert "STRAGGLER" in found_in(late_rank(forward=69.0))
    assert "COMPUTE_STRAGGLER" in found_in(late_rank(forward=70.0))


def test_forward_is_no_cause_under_fsdp():
    """Ranks wait in forward too, so a longer forward does not say who is late."""
    builder = RunBuilder(strategy="fsdp")
    builder.rank(0, STEPS, h2d=55.0, traced=145.0).rank(1, STEPS, backward=95.0, traced=145.0)

    assert found_in(builder)["H2D_STRAGGLER"].evidence["component_excesses_ms"].keys() == {"input_wait", "h2d"}


def test_the_straggler_rule_abstains_without_two_measured_ranks():
    """Backward of one of two ranks is missing, so nothing can be compared, and that is said."""
    builder = RunBuilder().rank(0, STEPS).rank(1, STEPS, backward=None)

    assert found_in(builder)["INCOMPLETE_DATA"].evidence["signal_coverage"] == {"backward": "1/2"}


def test_a_rule_fires_from_the_ranks_that_have_its_signals():
    """Rank 1 lacks forward; rank 0 alone shows a heavy residual."""
    builder = RunBuilder().rank(0, STEPS, forward=5.0).rank(1, STEPS, forward=None)

    assert "RESIDUAL_HEAVY" in found_in(builder)


@pytest.mark.parametrize(("excess", "severity"), [(11.0, None), (12.0, "warn"), (25.0, "crit")])
def test_a_slow_rank_begins_at_a_tenth_of_its_step(excess, severity):
    """Three free-running ranks, one of which spends longer in its optimizer."""
    builder = RunBuilder().rank(0, STEPS).rank(1, STEPS)
    builder.rank(2, STEPS, optimizer=10.0 + excess, traced=95.0 + excess)

    assert severity_of("SLOW_RANK", builder) == severity


@pytest.mark.parametrize(("fetch", "severity"), [(1000.0, None), (1300.0, "warn"), (5000.0, "crit")])
def test_stalls_begin_at_a_tenth_of_all_time(fetch, severity):
    """One long fetch in 100 steps of 100 ms: 1 s is 9 % of all time, 1.3 s 11 %, 5 s 33 %."""

    def long_fetch(number, values):
        return {"input_wait": fetch} if number == 50 else {}

    assert severity_of("INPUT_STALLS", RunBuilder().rank(0, range(1, 101), change=long_fetch)) == severity


def test_stalls_of_h2d_are_seen_on_the_gpu_clock_only():
    """One transfer of 2.5 s in 100 steps."""

    def long_copy(number, values):
        return {"h2d": 2500.0, "traced": 2590.0} if number == 50 else {}

    assert severity_of("H2D_STALLS", RunBuilder(gpu=True).rank(0, range(1, 101), change=long_copy)) == "warn"
    assert severity_of("H2D_STALLS", RunBuilder().rank(0, range(1, 101), change=long_copy)) is None


def test_stalls_name_the_rank_that_lost_most():
    """Rank 1 alone had the long fetch."""

    def long_fetch(number, values):
        return {"input_wait": 2500.0} if number == 50 else {}

    builder = RunBuilder().rank(0, range(1, 101)).rank(1, range(1, 101), change=long_fetch)

    assert found_in(builder)["INPUT_STALLS"].ranks == (1,)


def drifting(n_steps, growth):
    def drift(number, values):
        extra_ms = 100.0 * growth * (number - 1) / (n_steps - 1)
        return {"forward": 30.0 + extra_ms, "traced": 95.0 + extra_ms}

    return RunBuilder().rank(0, range(1, n_steps + 1), change=drift)


@pytest.mark.parametrize(
    ("n_steps", "growth", "severity"), [(199, 1.0, None), (200, 1.0, "crit"), (300, 0.25, "warn"), (300, 0.1, None)]
)
def test_a_slowdown_needs_200_steps_and_15_percent(n_steps, growth, severity):
    """A doubling is critical, a quarter is a warning, a tenth is nothing."""
    assert severity_of("SLOWDOWN", drifting(n_steps, growth)) == severity


def test_a_step_that_jumps_back_is_no_slowdown():
    """A slow middle third has no slope, and the last third does not confirm one."""

    def slow_middle(number, values):
        return {"forward": 130.0, "traced": 195.0} if 100 < number <= 200 else {}

    assert severity_of("SLOWDOWN", RunBuilder().rank(0, range(1, 301), change=slow_middle)) is None


@pytest.mark.parametrize(("last_step", "fires"), [(99, True), (100, False)])
def test_a_silent_rank_is_more_than_a_live_window_behind(last_step, fires):
    """101 of 200 steps behind is silent, 100 is late."""
    builder = RunBuilder().rank(0, range(1, 201), traced=995.0).rank(1, range(1, last_step + 1), traced=995.0)

    assert ("RANK_SILENT" in found_in(builder)) is fires


def test_a_rank_behind_for_less_than_30_seconds_is_not_silent():
    """150 steps of 100 ms are 15 s."""
    builder = RunBuilder().rank(0, range(1, 201)).rank(1, range(1, 51))

    assert "RANK_SILENT" not in found_in(builder)


@pytest.mark.parametrize(("lost", "severity"), [(2, None), (3, "warn"), (20, "crit")])
def test_a_record_is_incomplete_above_one_percent(lost, severity):
    """2 of 200 steps are 1 %, 3 are more, 20 are a tenth."""
    gaps = set(range(100, 100 + lost))
    builder = RunBuilder().rank(0, [number for number in range(1, 201) if number not in gaps])

    assert severity_of("INCOMPLETE_RECORD", builder) == severity


def test_gaps_in_a_short_run_are_no_finding():
    """Of 24 steps one is 4 %, which says nothing about a rate of 1 %; coverage still counts it."""
    builder = RunBuilder().rank(0, [number for number in STEPS if number != 12])

    assert list(found_in(builder)) == ["BALANCED"]


@pytest.mark.parametrize(("backward", "fires"), [(89.9, False), (90.0, True)])
def test_hidden_skew_begins_at_three_times_forward(backward, fires):
    """A backward of three times forward has more in it than gradients."""
    builder = RunBuilder()
    for rank in range(2):
        builder.rank(rank, STEPS, backward=backward, traced=50.0 + backward)

    assert ("BACKWARD_SKEW_HIDDEN" in found_in(builder)) is fires


def test_hidden_skew_needs_ranks_to_wait_for():
    """A single rank hides nobody."""
    assert "BACKWARD_SKEW_HIDDEN" not in found_in(RunBuilder().rank(0, STEPS, backward=150.0, traced=200.0))


def test_no_step_is_no_data():
    """An empty run has one finding, which says what to check."""
    issue = found_in(RunBuilder())["NO_DATA"]

    assert (issue.severity, issue.summary) == ("info", "No training step was recorded.")
    assert "stepmeter doctor" in issue.action


def test_one_step_is_warmup():
    """A single step is not judged, however it looks."""
    assert list(found_in(input_bound([1], 90.0))) == ["WARMUP"]


def test_ranks_without_a_common_step_are_no_data():
    """Two ranks that never completed the same step can't be aligned."""
    builder = RunBuilder().rank(0, range(1, 5)).rank(1, range(5, 9))

    assert found_in(builder)["NO_DATA"].evidence == {"recorded_steps": 8}


def finding(kind, severity, score):
    return Issue(kind, kind, severity, "why", "next", score=score)


def test_findings_go_by_severity_then_score():
    """A critical finding of 0.2 comes before a warning of 0.9, which comes before one of 0.1 and one without."""
    issues = [
        finding("D", "warn", None),
        finding("C", "warn", 0.1),
        finding("B", "warn", 0.9),
        finding("A", "crit", 0.2),
    ]

    assert [issue.kind for issue in order(issues)] == ["A", "B", "C", "D"]


def test_stragglers_go_first_on_an_exact_tie_only():
    """A straggler of equal score goes before, one of a lower score does not."""
    tie = [finding("INPUT_BOUND", "warn", 0.2), finding("STRAGGLER", "warn", 0.2)]
    close = [finding("INPUT_BOUND", "warn", 0.2), finding("STRAGGLER", "warn", 0.19999)]

    assert [issue.kind for issue in order(tie)] == ["STRAGGLER", "INPUT_BOUND"]
    assert [issue.kind for issue in order(close)] == ["INPUT_BOUND", "STRAGGLER"]


@pytest.mark.parametrize("rule", [*GATES, *RULES, *CONCLUSIONS], ids=lambda rule: rule.kinds[0])
def test_each_rule_documents_its_kinds_why_and_next(rule):
    """The docstring of a rule is its page: it names every kind, says why, and what to try next."""
    assert all(kind in rule.explanation for kind in rule.kinds)
    assert "*Why*" in rule.explanation
    assert "*Next*" in rule.explanation


def test_no_two_rules_share_a_kind():
    """A kind leads to one rule."""
    kinds = [kind for rule in (*GATES, *RULES, *CONCLUSIONS) for kind in rule.kinds]

    assert len(kinds) == len(set(kinds))
