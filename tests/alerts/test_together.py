import math

import pytest

from stepmeter.alerts.engine import AlertEngine
from stepmeter.alerts.rule import parse_rule
from stepmeter.alerts.together import WAIT_S, Together, looks_at_others, wanted
from stepmeter.conventions.rows import Row


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("loss@rank1", ("loss", None, 1)),
        ("time_ms/forward@max", ("time_ms/forward", None, "max")),
        ("rows@data.rank0", ("rows", "data", 0)),
        ("rows@data.sum", ("rows", "data", "sum")),
        ("acc@5", None),
        ("loss", None),
        ("loss@rank", None),
    ],
)
def test_a_name_may_stand_for_another_ranks_value(name, meaning):
    """After the last @ stands a rank or how ranks are combined, with the stream before a dot; `acc@5` is a name."""
    found = wanted(name)

    assert (found and found[1:]) == meaning
    assert looks_at_others(parse_rule(f"mean({name}[2]) > 1")) is (meaning is not None)


def together(names, *, ranks):
    made = Together(names)
    made.world_size = ranks
    return made


def row(step, **values):
    return Row(step, step * 10**9, values)


def test_a_step_is_looked_at_once_all_ranks_have_sent_it():
    """Of two ranks at 1 and 3 the greatest is 3, the mean 2 and the sum 4, once the second one's row is there."""
    both = together(["loss@max", "loss@mean", "loss@sum", "loss@median", "loss@rank1"], ranks=2)
    both.add(None, 0, 0, row(0, loss=1, other=7), 0.0)
    assert list(both.ready(0.0)) == []
    both.add(None, 1, 0, row(0, loss=3), 1.0)

    (found,) = both.ready(1.0)
    assert found.values == {"loss@max": 3, "loss@mean": 2, "loss@sum": 4, "loss@median": 2, "loss@rank1": 3}
    assert list(both.ready(1.0)) == []


def test_a_rank_that_is_ahead_waits_for_the_others():
    """Steps come in order, each when the slowest rank has passed it."""
    both = together(["x@min"], ranks=2)
    for step in range(5):
        both.add(None, 0, 0, row(step, x=step), 0.0)
    both.add(None, 1, 0, row(1, x=-1), 0.0)

    assert [(found.step, found.values["x@min"]) for found in both.ready(0.0)] == [(0, 0), (1, -1)]


def test_a_rank_that_hangs_holds_nothing_up_for_ever():
    """After half a minute a step is looked at without the rank that did not send; what it sends then is late."""
    both = together(["x@max"], ranks=2)
    both.add(None, 0, 0, row(0, x=5), 0.0)

    assert list(both.ready(WAIT_S - 1)) == []
    assert [found.values for found in both.ready(WAIT_S)] == [{"x@max": 5}]
    both.add(None, 1, 0, row(0, x=9), WAIT_S)
    assert both.late == 1


def test_a_new_attempt_starts_where_it_starts():
    """A restart from step 2 is looked at from there, and rows of the attempt before are late."""
    one = together(["x@max"], ranks=1)
    for step in range(4):
        one.add(None, 0, 0, row(step, x=1), 0.0)
    assert [found.step for found in one.ready(0.0)] == [0, 1, 2, 3]
    one.add(None, 0, 1, row(2, x=2), 0.0)
    one.add(None, 0, 0, row(9, x=1), 0.0)

    assert [(found.step, found.values["x@max"]) for found in one.ready(0.0)] == [(2, 2)]


def test_streams_are_kept_apart():
    """A rule may compare the stream of a loader with the default one."""
    found = []
    engine = AlertEngine([parse_rule("rows@data.rank0 < 10 and loss@max > 2")], 0.0, found.append)
    several = together(["rows@data.rank0", "loss@max"], ranks=1)
    several.add("data", 0, 0, row(7, rows=3), 0.0)
    several.add(None, 0, 0, row(1, loss=5), 0.0)
    several.add("other", 0, 0, row(1, rows=5), 0.0)
    for each in several.ready(0.0):
        engine.on_row(each)

    assert len(found) == 1


def test_nan_and_words_are_what_they_are():
    """NaN of any rank is NaN of their mean, which is unknown to a rule; a word is no number."""
    both = together(["x@mean", "x@rank0"], ranks=2)
    both.add(None, 0, 0, row(0, x="word"), 0.0)
    both.add(None, 1, 0, row(0, x=math.nan), 0.0)

    (found,) = both.ready(0.0)
    assert found.values["x@rank0"] == "word"
    assert math.isnan(found.values["x@mean"])
