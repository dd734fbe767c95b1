from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.step_time import RunBuilder

from stepmeter.analysis.step_time.model import METRICS
from stepmeter.analysis.step_time.pipeline import analyze

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MILLISECONDS = st.integers(0, 400).map(lambda quarter: quarter / 4)
PHASES = ("input_wait", "h2d", "forward", "backward", "optimizer")


@st.composite
def ranks(draw, min_size=1):
    """Phases of each rank, constant over its steps; traced is what they sum to and a rest."""
    built = []
    for _ in range(draw(st.integers(min_size, 4))):
        phases = {name: draw(MILLISECONDS) for name in PHASES}
        phases["traced"] = sum(phases[name] for name in PHASES[1:]) + draw(MILLISECONDS) + 0.25
        built.append(phases)
    return built


def analysis_of(built, ids=None, numbers=range(1, 25)):
    builder = RunBuilder()
    for position, phases in enumerate(built):
        builder.rank(position if ids is None else ids[position], numbers, **phases)
    return analyze(builder.snapshot(), 10_000)


@QUICK
@given(ranks(min_size=2), st.randoms(use_true_random=False))
def test_renaming_ranks_renames_the_result(built, random):
    """Facts of a rank follow it to its new id, and statistics stay."""
    ids = list(range(len(built)))
    random.shuffle(ids)

    before, after = analysis_of(built).window, analysis_of(built, ids).window

    for position, new_id in enumerate(ids):
        assert before.facts(position).average == after.facts(new_id).average
    for name, metric in before.metrics.items():
        assert (metric.median_ms, metric.worst_ms, metric.skew) == (
            after.metrics[name].median_ms,
            after.metrics[name].worst_ms,
            after.metrics[name].skew,
        )


@QUICK
@given(ranks(min_size=2), MILLISECONDS)
def test_adding_a_constant_to_a_phase_everywhere_keeps_the_order_of_ranks(built, extra_ms):
    """Who is slower stays slower."""
    more = [phases | {name: phases[name] + extra_ms for name in PHASES} for phases in built]
    more = [phases | {"traced": phases["traced"] + 4 * extra_ms} for phases in more]

    before, after = analysis_of(built).window, analysis_of(more).window

    for name in ("input_wait_ms", "forward_ms", "backward_ms", "step_time_ms"):
        assert before.metrics[name].worst_rank == after.metrics[name].worst_rank


@QUICK
@given(ranks())
def test_phases_and_residual_sum_to_traced_time(built):
    """Nothing is counted twice and nothing is lost."""
    for facts in analysis_of(built).window.rank_facts:
        mean = facts.average
        parts = math.fsum([mean.h2d_ms, mean.forward_ms, mean.backward_ms, mean.optimizer_ms, mean.residual_ms])

        assert parts == pytest.approx(mean.traced_step_time_ms)
        assert mean.step_time_ms == pytest.approx(mean.input_wait_ms + mean.traced_step_time_ms)


@QUICK
@given(ranks(min_size=2), st.integers(1, 24))
def test_a_step_that_one_rank_lacks_is_in_no_window(built, lost):
    """Dropping one rank's step drops it for all, and no other."""
    builder = RunBuilder()
    for rank, phases in enumerate(built):
        builder.rank(rank, [number for number in range(1, 25) if rank or number != lost], **phases)

    assert analyze(builder.snapshot(), 10_000).window.steps == tuple(n for n in range(1, 25) if n != lost)


@QUICK
@given(ranks(), st.sampled_from([*PHASES]))
def test_every_number_is_finite_and_every_score_is_a_share(built, absent):
    """Whatever is measured or missing, there is a finding, and its numbers can be written as JSON."""
    some = [phases | {absent: None} if rank == 0 else phases for rank, phases in enumerate(built)]
    analysis = analysis_of(some)

    assert analysis.diagnosis.issues
    for issue in analysis.diagnosis.issues:
        assert issue.score is None or 0.0 <= issue.score <= 1.0
    for facts in analysis.window.rank_facts:
        assert all(math.isfinite(facts.average.get(name) or 0.0) for name in METRICS)
