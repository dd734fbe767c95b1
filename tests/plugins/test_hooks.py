import pytest
from tests.support.recorded import recorded_spans

from stepmeter import span


@pytest.fixture
def recorded():
    with recorded_spans() as found:
        yield found


class Fixed:
    def __init__(self, **values):
        self.values, self.started = values, []

    def start(self, opened):
        self.started.append(opened.path)

    def end(self, _):
        return self.values


def test_what_a_plugin_returns_is_under_the_spans_path(recorded):
    """Each key is a metric of its own in the row and an attribute of the span."""
    _, book = recorded
    with span("forward", plugins=[Fixed(tokens=3)], rows=2) as forward:
        pass

    assert book.rows()[0].values["tokens/forward"] == 3
    assert forward.encoded == {"rows": 2, "tokens": 3}


def test_children_inherit_and_may_switch_off(recorded):
    """A child is measured by the plugins around it, by its own, or with None by none."""
    outer, own = Fixed(a=1), Fixed(b=2)
    with span("x", plugins=[outer]), span("y"), span("z", plugins=[own]), span("none", plugins=None):
        pass

    assert outer.started == ["x", "x/y"]
    assert own.started == ["x/y/z"]


def test_a_plain_function_looks_at_the_end(recorded):
    """A function of the span is a plugin, alone or in a list; the later of two wins a key."""
    with span("x", plugins=[Fixed(n=1), lambda ended: {"n": 2, "ms": ended.duration_ms}]) as x:
        pass
    with span("y", plugins=lambda _: {"n": 3}) as y:
        pass

    assert x.metrics == {"n": 2, "ms": x.duration_ms}
    assert y.metrics == {"n": 3}


def test_a_plugin_that_fails_is_named_once(recorded):
    """Fifty failures in each hook break nothing and are two lines; the plugin beside it is not touched."""
    recorder, _ = recorded

    class Broken:
        def start(self, _):
            raise RuntimeError("start")

        def end(self, _):
            raise RuntimeError("end")

    for _ in range(50):
        with span("x", plugins=[Broken(), Fixed(n=1)]) as x:
            pass

    assert x.metrics == {"n": 1}
    assert len(recorder.said) == 2


def test_time_and_count_belong_to_the_span(recorded):
    """A plugin that returns `time_ms` or `count` has it dropped, with a line."""
    recorder, book = recorded
    with span("x", plugins=[Fixed(time_ms=0, count=9, n=1)]) as x:
        pass

    assert x.metrics == {"n": 1}
    assert book.rows()[0].values["time_ms/x"] > 0
    assert len(recorder.said) == 2


def test_numpy_values_are_added_up(recorded):
    """Values are made plain before they are combined; one that can't be leaves the others alone."""
    import numpy as np

    _, book = recorded
    for _ in range(2):
        with span("x", plugins=[Fixed(n=np.int64(2), odd=object())]):
            pass

    assert book.rows()[0].values["n/x"] == 4


def test_hooks_are_outside_the_spans_own_time(recorded):
    """What a plugin takes counts for the span around, not for the span that it measures."""
    import time

    class Slow:
        def start(self, _):
            time.sleep(0.02)

        def end(self, _):
            time.sleep(0.02)
            return {}

    with span("parent", plugins=None) as parent, span("kid", plugins=[Slow()]) as kid:
        pass

    assert kid.duration_ms < 15
    assert parent.duration_ms > 35
