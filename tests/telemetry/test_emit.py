from tests.telemetry.builders import ANCHOR, MS, origin, region, step

from stepmeter.capture.facts import step_facts
from stepmeter.capture.identity import Identity
from stepmeter.capture.step import StepMemory
from stepmeter.telemetry.aggregate import Aggregator
from stepmeter.telemetry.emit import SCOPE, record_step, run_span, step_spans


def spans_of(batch, *, memory=None, children=False, of=None):
    return step_spans(batch, step_facts(batch), memory, of or origin(), children=children)


def points(aggregator):
    data = aggregator.collect(ANCHOR.unix_ns, origin().resource, SCOPE)
    return {metric.name: metric.data.data_points for metric in data.resource_metrics[0].scope_metrics[0].metrics}


def test_step_span_carries_its_facts():
    """A step span has its number, its rank, its times on the wall axis and its phases in nanoseconds."""
    (span,) = spans_of(step(7, samples=50, identity=Identity(rank=1, world_size=2, strategy="ddp")))

    assert (span.name, span.start_ns, span.end_ns) == ("step", ANCHOR.unix_ns, ANCHOR.unix_ns + 100 * MS)
    assert span.facts == {
        "stepmeter.step": 7,
        "stepmeter.attempt": 0,
        "stepmeter.rank": 1,
        "stepmeter.world_size": 2,
        "stepmeter.strategy": "ddp",
        "stepmeter.microbatches": 1,
        "stepmeter.samples": 50,
        "stepmeter.traced.cpu_ns": 80 * MS,
        "stepmeter.phase.input_wait.cpu_ns": 20 * MS,
        "stepmeter.phase.input_wait.count": 1,
        "stepmeter.phase.forward.cpu_ns": 30 * MS,
        "stepmeter.phase.forward.count": 1,
        "stepmeter.phase.backward.cpu_ns": 40 * MS,
        "stepmeter.phase.backward.count": 1,
        "stepmeter.phase.optimizer.cpu_ns": 5 * MS,
        "stepmeter.phase.optimizer.count": 1,
    }


def test_absent_is_not_zero():
    """A phase that was not observed leaves no attribute, and neither do memory and samples that nobody measured."""
    (span,) = spans_of(step(regions=[region("forward", 0, 30)]))

    keys = set(span.facts)
    assert not {key for key in keys if "input_wait" in key or "gpu" in key or "memory" in key or "samples" in key}


def test_memory_peaks_join_their_step():
    """The allocator's peaks stand on the step that they belong to, in bytes."""
    (span,) = spans_of(step(), memory=StepMemory(1, "GPU-1", 1000, 2000, Identity()))

    assert (
        span.facts["stepmeter.memory.peak_allocated"],
        span.facts["stepmeter.memory.peak_reserved"],
    ) == (1000, 2000)


def test_children_are_the_regions_at_their_times():
    """Each region becomes a child of the step, at its true times, with an id of its own."""
    parent, *children = spans_of(step(), children=True)

    assert [child.name for child in children] == ["input_wait", "forward", "backward", "optimizer"]
    assert {parent.span_id} == {child.parent_id for child in children}
    assert len({span.span_id for span in (parent, *children)}) == 5
    assert (children[1].start_ns, children[1].end_ns) == (ANCHOR.unix_ns + 20 * MS, ANCHOR.unix_ns + 50 * MS)


def test_ranks_share_the_trace_of_a_step():
    """All ranks of a step are in one trace, each with its own span; another step or attempt is another trace."""
    (first,) = spans_of(step(3, identity=Identity(rank=0, world_size=2)))
    (second,) = spans_of(step(3, identity=Identity(rank=1, world_size=2)))
    (next_step,) = spans_of(step(4))
    (next_attempt,) = spans_of(step(3, identity=Identity(attempt=1)))

    assert first.trace_id == second.trace_id
    assert first.span_id != second.span_id
    assert len({span.trace_id for span in (first, next_step, next_attempt)}) == 3


def test_same_batch_is_the_same_span():
    """A batch that is sent twice has the same ids, so that a reader can tell."""
    assert spans_of(step(3))[0][1:4] == spans_of(step(3))[0][1:4]


def test_run_spans_mark_start_and_end():
    """A run's start and its end are two short spans of one trace."""
    start = run_span(Identity(), origin(), 0, "started")
    end = run_span(Identity(), origin(), 100 * MS, "completed")

    assert start.trace_id == end.trace_id
    assert start.span_id != end.span_id
    assert end.start_ns == end.end_ns == ANCHOR.unix_ns + 100 * MS


def test_metrics_count_steps_and_record_durations():
    """A step adds to the counters and to the duration histograms, in seconds, by rank, clock and phase."""
    aggregator = Aggregator(ANCHOR.unix_ns)
    for number in (1, 2):
        batch = step(number, samples=50)
        record_step(batch, step_facts(batch), None, "demo", aggregator)

    found = points(aggregator)
    (steps,) = found["stepmeter.steps"]
    (samples,) = found["stepmeter.samples"]
    (duration,) = found["stepmeter.step.duration"]
    phases = {point.attributes["phase"]: point.sum for point in found["stepmeter.phase.duration"]}
    assert (steps.value, dict(steps.attributes)) == (2, {"rank": 0, "run": "demo"})
    assert samples.value == 100
    assert (duration.count, round(duration.sum, 9), duration.max) == (2, 0.2, 0.1)
    assert {phase: round(total, 9) for phase, total in phases.items()} == {
        "input_wait": 0.04,
        "forward": 0.06,
        "backward": 0.08,
        "optimizer": 0.01,
    }


def test_histogram_bounds_are_inclusive_above():
    """A value on a bound falls into the bucket that the bound closes, as OpenTelemetry says."""
    aggregator = Aggregator(0)
    batch = step(regions=[], start_ms=0, end_ms=100)
    record_step(batch, step_facts(batch), None, "demo", aggregator)

    (duration,) = points(aggregator)["stepmeter.step.duration"]
    bucket = list(duration.bucket_counts).index(1)
    assert abs(duration.explicit_bounds[bucket] - 0.1) < 1e-12


def test_a_step_says_how_long_backward_waited_where_it_is_known():
    """A step that brings a new value of DDP's carries it; others have no such attribute."""
    batch = step()
    facts = step_facts(batch)
    with_wait = step_spans(batch, facts, None, origin(), children=False, wait_ns=7 * MS)[0].facts
    without = step_spans(batch, facts, None, origin(), children=False)[0].facts
    assert with_wait == {**without, "stepmeter.backward.wait_ns": 7 * MS}
