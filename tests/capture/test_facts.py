from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stepmeter.capture.facts import PhaseFacts, step_facts
from stepmeter.capture.identity import Identity
from stepmeter.capture.step import StepTimeBatch
from stepmeter.conventions.phases import PHASES


def facts_of(*regions, end_ns):
    regions = [(PHASES.index(phase), start, end, None) for phase, start, end in regions]
    start_ns = min(region[1] for region in regions)
    return step_facts(StepTimeBatch(1, start_ns, end_ns, regions, 1, None, None, False, Identity()))  # noqa: FBT003


def test_plain_step():
    """The phases of a plain step are their durations; what is between them is left to the residual."""
    facts = facts_of(
        ("input_wait", 0, 100), ("forward", 110, 200), ("backward", 200, 400), ("optimizer", 400, 450), end_ns=500
    )
    assert facts.phases == {
        "input_wait": PhaseFacts(100, None, 1),
        "forward": PhaseFacts(90, None, 1),
        "backward": PhaseFacts(200, None, 1),
        "optimizer": PhaseFacts(50, None, 1),
    }
    assert facts.traced_cpu_ns == 400


def test_later_input_waits_are_not_traced():
    """The waits for later micro-batches are taken out of the traced time."""
    facts = facts_of(
        ("input_wait", 0, 100), ("forward", 100, 200), ("input_wait", 200, 250), ("forward", 250, 300), end_ns=400
    )
    assert facts.phases["input_wait"] == PhaseFacts(150, None, 2)
    assert facts.phases["forward"] == PhaseFacts(150, None, 2)
    assert facts.traced_cpu_ns == 250


def test_closure_inside_optimizer():
    """Forward and backward inside an optimizer's closure are their own phases and not the optimizer's."""
    facts = facts_of(
        ("input_wait", 0, 50), ("forward", 110, 150), ("backward", 150, 180), ("optimizer", 100, 200), end_ns=200
    )
    assert facts.phases["optimizer"] == PhaseFacts(30, None, 1)
    assert facts.phases["forward"] == PhaseFacts(40, None, 1)
    assert facts.phases["backward"] == PhaseFacts(30, None, 1)


def test_three_levels():
    """Each moment counts in its innermost region only."""
    facts = facts_of(("backward", 20, 30), ("forward", 10, 40), ("optimizer", 0, 100), end_ns=100)
    assert {name: phase.cpu_ns for name, phase in facts.phases.items()} == {
        "forward": 20,
        "backward": 10,
        "optimizer": 70,
    }


@given(st.lists(st.tuples(st.sampled_from(PHASES), st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=9))
def test_each_moment_is_of_one_phase(found):
    """Whatever follows or encloses what, the phases add up to the time in which there is any; in order or not."""
    regions, now = [], 0
    for phase, pause, length in found:
        regions.append((phase, now + pause, now + pause + length))
        now += pause + length
    in_a_row = facts_of(*regions, end_ns=now)
    any_order = facts_of(*reversed(regions), end_ns=now)
    assert in_a_row == any_order
    assert list(in_a_row.phases) == list(any_order.phases)
    assert sum(phase.cpu_ns for phase in in_a_row.phases.values()) == sum(length for _, _, length in found)


def test_absent_is_not_zero():
    """A phase that was not observed is absent; one that took no time is there with zero."""
    facts = facts_of(("forward", 5, 5), end_ns=10)
    assert facts.phases == {"forward": PhaseFacts(0, None, 1)}
    assert facts.traced_cpu_ns == 5
