"""Runs that traceml-ai 0.5.0 misjudges, each with the finding that ours must give."""

from __future__ import annotations

import pytest
from tests.support.step_otlp import send
from tests.support.step_time import RunBuilder

from stepmeter.analysis.step_time.pipeline import StepTimePipeline, StepTimeRequest, analyze
from stepmeter.store.reader import open_run


def issues_of(builder: RunBuilder):
    return analyze(builder.snapshot(), 10_000).diagnosis.issues


def kinds_of(builder: RunBuilder) -> list[str]:
    return [issue.kind for issue in issues_of(builder)]


def test_one_long_fetch_is_a_stall_and_not_input_bound():
    """One fetch of 2.5 s among 100 steps of 100 ms took 20 % of all time, in one step."""

    def long_fetch(number, values):
        return {"input_wait": 2500.0} if number == 50 else {}

    issue = issues_of(RunBuilder().rank(0, range(1, 101), change=long_fetch))[0]

    assert (issue.kind, issue.severity) == ("INPUT_STALLS", "warn")
    assert issue.score == pytest.approx(2495 / 12495)
    assert issue.evidence["stalled_steps"] == 1
    assert issue.evidence["worst_steps"] == [{"step": 50, "duration_ms": 2500.0}]


def test_one_checkpoint_is_a_stall_and_not_residual_heavy():
    """One checkpoint of 5 s in 200 steps took 20 % of all time, in one step."""

    def checkpoint(number, values):
        return {"traced": 5095.0} if number == 150 else {}

    issue = issues_of(RunBuilder().rank(0, range(1, 201), change=checkpoint))[0]

    assert (issue.kind, issue.severity, issue.score) == ("RESIDUAL_STALLS", "warn", pytest.approx(0.2))
    assert issue.evidence["worst_steps"] == [{"step": 150, "duration_ms": 5005.0}]


def test_the_slow_one_of_two_free_running_ranks_is_blamed():
    """Nobody waits for the fast rank: their step times differ by what the slow one spends in backward."""
    numbers = range(1, 25)

    issue = issues_of(RunBuilder().rank(0, numbers).rank(1, numbers, backward=95.0, traced=145.0))[0]

    assert (issue.kind, issue.severity, issue.ranks, issue.phase) == ("SLOW_RANK", "crit", (1,), "backward")
    assert issue.score == pytest.approx(50 / 150)


def test_a_rank_slow_in_backward_behind_the_collective_is_said_to_be_unseen():
    """Four synchronised ranks with a backward of 95 ms for a forward of 30: one may be slow and three may wait."""
    builder = RunBuilder()
    for rank in range(4):
        builder.rank(rank, range(1, 25), backward=95.0, traced=145.0)

    issue = next(issue for issue in issues_of(builder) if issue.kind == "BACKWARD_SKEW_HIDDEN")

    assert issue.severity == "info"
    assert "torch.profiler" in issue.action


def slow_in_backward(strategy="ddp"):
    """Four ranks with a backward of 95 ms, in which rank 2 waits 5 ms for the exchange and the others 55 ms."""
    builder = RunBuilder(strategy=strategy)
    for rank in range(4):
        builder.rank(rank, range(1, 25), backward=95.0, traced=145.0)
        builder.waits(rank, dict.fromkeys((2, 4, 8, 16), 5.0 if rank == 2 else 55.0))
    return builder


def analyses_of(builder, directory):
    """The same run from model rows, from a store and through OTLP."""
    yield analyze(builder.snapshot(), 10_000)
    for run in (builder.write(directory / "store"), send(builder, directory / "otlp", "run")):
        with open_run(run) as reader:
            yield StepTimePipeline().run(StepTimeRequest(reader.snapshot(), "summary"))


def test_a_rank_slow_in_backward_is_named_where_ddp_measures_the_waits(tmp_path):
    """What each rank waits inside backward tells the slow one, which computes 90 ms there, from those of 40 ms."""
    for analysis in analyses_of(slow_in_backward(), tmp_path):
        issue = analysis.diagnosis.issues[0]

        assert (issue.kind, issue.severity, issue.ranks, issue.phase) == ("COMPUTE_STRAGGLER", "crit", (2,), "backward")
        assert issue.score == pytest.approx(50 / 150)
        assert issue.summary.startswith("Rank 2 computes 90.0 ms in backward, rank 1 40.0 ms; so, inside backward, ")
        assert "BACKWARD_SKEW_HIDDEN" not in {each.kind for each in analysis.diagnosis.issues}


@pytest.mark.parametrize(
    ("builder", "expected"),
    [
        (slow_in_backward("fsdp"), False),
        (slow_in_backward().waits(1, {2: 55.0, 4: 55.0, 8: 55.0}), False),
        (slow_in_backward().waits(2, {2: 5.0, 4: 60.0, 8: 5.0, 16: 5.0}), False),
        (slow_in_backward().waits(2, {2: 45.0, 4: 45.0, 8: 45.0, 16: 45.0}), False),
        (slow_in_backward().waits(2, {2: 5.0, 4: 5.0, 8: 54.0, 16: 5.0}), True),
    ],
    ids=["fsdp", "too few measures", "not apart", "below 10 % of the step", "apart"],
)
def test_waits_in_backward_name_a_rank_only_when_they_are_told_apart(builder, expected):
    """Under fsdp, with fewer than four measures, or where waits overlap or hardly differ, nobody is blamed."""
    assert ("COMPUTE_STRAGGLER" in kinds_of(builder)) is expected


def test_ranks_that_wait_equally_long_hide_nobody():
    """Where DDP's measures say that all wait equally long, nothing is said to be unseen."""
    builder = slow_in_backward().waits(2, dict.fromkeys((2, 4, 8, 16), 55.0))

    assert not {"COMPUTE_STRAGGLER", "BACKWARD_SKEW_HIDDEN"} & set(kinds_of(builder))


def test_steps_that_take_longer_and_longer_are_a_slowdown():
    """Backward grows from 45 to 345 ms over 300 steps, and so does the step, from 100 to 400."""

    def drift(number, values):
        extra_ms = number - 1
        return {"backward": 45.0 + extra_ms, "traced": 95.0 + extra_ms}

    issue = issues_of(RunBuilder().rank(0, range(1, 302), change=drift))[0]

    assert (issue.kind, issue.severity, issue.phase) == ("SLOWDOWN", "crit", "backward")
    assert issue.evidence["slope_ms_per_step"] == pytest.approx(1.0)
    assert 50 < issue.evidence["since_step"] < 100


def test_a_rank_that_stopped_is_silent_and_hides_nobody():
    """Rank 1 is silent since step 20 of 200; the window is that of the other rank, to its last step."""
    builder = RunBuilder().rank(0, range(1, 201), traced=995.0).rank(1, range(1, 21), traced=995.0)
    analysis = analyze(builder.snapshot(), 10_000)

    issue = next(issue for issue in analysis.diagnosis.issues if issue.kind == "RANK_SILENT")
    assert (issue.severity, issue.ranks) == ("crit", (1,))
    assert issue.evidence["silent"] == [
        {"rank": 1, "last_step": 20, "behind_steps": 180, "age_s": 180.0, "host": "worker-0"}
    ]
    assert (analysis.window.steps[-1], analysis.window.ranks) == (200, (0,))
    assert analysis.window.expected_ranks == (0, 1)


def test_steps_that_never_arrived_are_said():
    """64 of 100 steps were lost: that is critical, whatever the others look like."""
    builder = RunBuilder().rank(0, [number for number in range(1, 101) if number % 25 < 9])
    builder.rank(1, [number for number in range(1, 101) if number % 25 < 9])

    issue = issues_of(builder)[0]

    assert (issue.kind, issue.severity) == ("INCOMPLETE_RECORD", "crit")
    assert issue.evidence["lost_steps"] == 2 * sum(number % 25 >= 9 for number in range(1, 101))


def test_steps_that_the_program_dropped_are_said():
    """The counter of drops counts, even where the numbering shows no gap."""
    builder = RunBuilder(dropped={"steps_queue_full": 10, "memory_queue_full": 99}).rank(0, range(1, 91))

    issue = issues_of(builder)[0]

    assert (issue.kind, issue.severity, issue.evidence["lost_steps"]) == ("INCOMPLETE_RECORD", "crit", 10)


def test_one_lost_device_time_does_not_turn_the_clock():
    """Of 100 steps one lost its GPU pair: it is left out, and H2D_BOUND stays critical."""
    builder = RunBuilder(gpu=True).rank(0, range(1, 101), h2d=25.0, forward=15.0)
    builder.lose_gpu(0, 40, "forward")
    analysis = analyze(builder.snapshot(), 10_000)

    assert (analysis.window.clock, len(analysis.window.steps)) == ("gpu", 99)
    assert analysis.window.coverage.gpu_pairs_lost == 1
    assert [(issue.kind, issue.severity) for issue in analysis.diagnosis.issues] == [("H2D_BOUND", "crit")]
