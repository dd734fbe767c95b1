import pytest

from stepmeter.telemetry.budget import PhaseBudget, budget_from_environ

SECOND = 1_000_000_000


def granted(budget, steps, spans, every_ns):
    return sum(budget.take(spans, number * every_ns) for number in range(steps))


def test_budget_is_spent_by_whole_steps():
    """At 50 spans a second, steps of five regions at 100 a second show about ten of them a second."""
    shown = granted(PhaseBudget(50), steps=1000, spans=5, every_ns=SECOND // 100)

    assert 100 <= shown <= 111


def test_slow_steps_all_show():
    """Steps that together stay below the budget all show their phases."""
    assert granted(PhaseBudget(50), steps=20, spans=5, every_ns=SECOND) == 20


def test_zero_shows_none():
    """A budget of 0 makes no phase spans."""
    assert granted(PhaseBudget(0), steps=100, spans=5, every_ns=SECOND) == 0


def test_a_step_larger_than_the_budget_gets_its_turn():
    """A step with more regions than a second's budget is shown now and then, not never."""
    shown = granted(PhaseBudget(50), steps=100, spans=500, every_ns=SECOND)

    assert 9 <= shown <= 11


@pytest.mark.parametrize(("setting", "expected"), [("", True), ("many", True), ("0", False), ("-3", False)])
def test_nonsense_setting_is_the_default(setting, expected):
    """A setting that is no number counts as unset; 0 or less means none."""
    budget = budget_from_environ({"STEPMETER_PHASE_SPANS_PER_SECOND": setting})

    assert expected is budget.take(5, 0)
