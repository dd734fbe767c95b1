import json
import os
import subprocess
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from tests.support.recorded import by_path

from stepmeter import span, start_span
from stepmeter.capture.identity import Identity
from stepmeter.capture.step import Recorder, StepTimeBatch
from stepmeter.capture.step_context import enter_step, leave_step, step_ids
from stepmeter.telemetry.placing import HOLD_NS, Placing
from stepmeter.telemetry.user_drain import sampler_decision

PROGRAM = """
import sys, torch, stepmeter
from stepmeter.telemetry import placing
placing.HOLD_NS = 10**11  # this machine may be busy
run = stepmeter.init(name="r", dir=sys.argv[1])
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def update(name):
    with stepmeter.span(name):
        with stepmeter.span("inside"):
            loss = model(torch.ones(2, 4)).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

for _ in range(3):
    update("found")
for _ in range(3):
    with stepmeter.trace_step():
        update("marked")
stepmeter.finish()
"""


def facts(record):
    return {pair["key"]: next(iter(pair["value"].values()), None) for pair in record.get("attributes", ())}


def test_spans_in_a_marked_step_are_its_children_and_others_link_theirs(tmp_path):
    """Inside `trace_step` a span is a child of the step's own span; elsewhere it is a trace that links the step."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("STEPMETER_", "OTEL_"))}
    subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], env=environ, check=True, timeout=100)
    (lines,) = tmp_path.glob("r/otlp/*.jsonl")
    spans = [
        each
        for request in map(json.loads, lines.read_text().splitlines())
        for part in request.get("resourceSpans", ())
        for scope in part["scopeSpans"]
        for each in scope["spans"]
    ]
    steps = {(each["traceId"], each["spanId"]): each for each in spans if each["name"] == "step"}
    assert len(steps) == 6

    marked = [each for each in spans if each["name"] == "marked"]
    parents = [steps[each["traceId"], each["parentSpanId"]] for each in marked]
    assert [facts(step)["stepmeter.step"] for step in parents] == ["4", "5", "6"]
    for step, child in zip(parents, marked, strict=True):
        assert int(step["startTimeUnixNano"]) <= int(child["startTimeUnixNano"])
        assert int(child["endTimeUnixNano"]) <= int(step["endTimeUnixNano"])
        assert not child.get("links")

    found = [each for each in spans if each["name"] == "found"]
    assert [each.get("parentSpanId", "") for each in found] == [""] * 3
    linked = [[steps[link["traceId"], link["spanId"]] for link in each["links"]] for each in found]
    assert [[facts(step)["stepmeter.step"] for step in each] for each in linked] == [["1"], ["2"], ["3"]]
    inside = [each for each in spans if each["name"] == "inside"]
    assert not any(each.get("links") for each in inside)


def ids_of(recorder, step):
    trace_id, span_id = step_ids("run-1", 0, recorder.identity.rank, step)
    return int.from_bytes(trace_id, "big"), int.from_bytes(span_id, "big")


def test_other_libraries_spans_are_children_of_the_step_too(recorder):
    """Whoever starts a span inside a step gets the step's ids, and the context around is back after it."""
    recorder.run_id = "run-1"
    steps = Recorder(Identity(rank=3))
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("other")
    with tracer.start_as_current_span("job") as job:
        entered = enter_step(steps)
        with tracer.start_as_current_span("GET") as theirs:
            pass
        with span("ours"):
            pass
        leave_step(entered)
        assert trace.get_current_span() is job

    assert (theirs.context.trace_id, theirs.parent.span_id) == ids_of(steps, 1)
    ours = by_path(recorder)["ours"]
    assert (ours.trace_id, ours.parent_id) == ids_of(steps, 1)


def test_a_span_left_open_in_a_step_is_not_the_next_steps_parent(recorder):
    """A thousand steps that each leave a span open hold on to nothing, and a span after the step is a root."""
    recorder.run_id = "run-1"
    steps = Recorder()
    for _ in range(1000):
        entered = enter_step(steps)
        left = start_span("left")
        leave_step(entered)
        left.end()
    with span("after"):
        pass

    after = by_path(recorder)["after"]
    assert (after.parent_id, after.path) == (0, "after")
    depth, context = 0, after.outside
    while (current := trace.get_current_span(context)) is not trace.INVALID_SPAN and hasattr(current, "outside"):
        depth, context = depth + 1, current.outside
    assert depth <= 2


def test_the_users_sampler_decides_inside_a_step(recorder):
    """A sampler that drops drops the spans of a step as well, although the step itself always leaves."""
    from opentelemetry.sdk.trace import sampling

    recorder.run_id = "run-1"
    never = TracerProvider(sampling.ParentBased(sampling.ALWAYS_OFF), shutdown_on_exit=False)
    recorder.decide = sampler_decision(never)
    entered = enter_step(Recorder())
    with span("ours") as ours:
        pass
    leave_step(entered)

    assert not ours.sampled


def test_nothing_is_entered_where_nothing_is_recorded():
    """Without a session a step changes nothing in the context."""
    assert enter_step(Recorder()) is None


def completed(number, start_ns, end_ns):
    return StepTimeBatch(number, start_ns, end_ns, [], 1, None, None, warmup=False, identity=Identity())


def ended(at_ns, *, step=None, parent_id=0):
    made = span("x")
    made.parent_id, made.step, made.end_ns = parent_id, step, at_ns
    return made


def test_a_span_waits_for_the_end_of_its_step():
    """Which step it lies in is known once that has completed, or after half a second."""
    placing = Placing()
    placing.saw([completed(1, 0, 100)])
    early, later, long = ended(50), ended(150), ended(350)

    assert placing.place([early, later, long], 400, hold=True) == [early]
    placing.saw([completed(2, 100, 300)])
    assert placing.place([], 500, hold=True) == [later]
    assert placing.place([], 400 + HOLD_NS, hold=True) == [long]
    assert [each.training_step for each in (early, later, long)] == [1, 2, 3]


def test_where_a_first_step_may_come_spans_wait_for_it():
    """In a program that has loaded torch the spans before the first known step wait as well, and no longer."""
    placing = Placing(lambda: True)
    first, second = ended(50), ended(150)
    assert placing.place([first, second], 200, hold=True) == []
    placing.saw([completed(1, 0, 100)])
    assert placing.place([], 300, hold=True) == [first]
    assert first.training_step == 1
    never = Placing(lambda: True)
    assert never.place([alone := ended(1)], 0, hold=True) == []
    assert never.place([], HOLD_NS, hold=True) == [alone]
    assert alone.training_step is None


def test_only_what_needs_a_step_waits():
    """A child in a row waits for nothing, nobody waits where nothing trains or at a flush, and order is kept."""
    placing = Placing()
    first = ended(1)
    assert placing.place([first], 1, hold=True) == [first]
    assert first.training_step is None
    placing.saw([completed(1, 10, 20)])
    assert placing.place([child := ended(30, step=4, parent_id=9)], 40, hold=True) == [child]
    assert placing.place([before := ended(5)], 40, hold=True) == [before]
    assert before.training_step is None
    spans = [ended(30 + number) for number in range(5)]
    assert placing.place(spans, 40, hold=False) == spans
