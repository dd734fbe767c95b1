import datetime as dt
import enum
from pathlib import Path

import numpy as np
import pytest
import torch

from stepmeter import span


class Color(enum.Enum):
    RED = "red"


class Awkward:
    def __repr__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (np.float32(0.5), 0.5),
        (np.arange(3), [0, 1, 2]),
        (torch.tensor(2.0), 2.0),
        (Path("/a/b"), "/a/b"),
        (dt.datetime(2026, 1, 2, tzinfo=dt.timezone.utc), "2026-01-02T00:00:00+00:00"),
        (Color.RED, "red"),
        ({"a": {1}}, {"a": [1]}),
        ((1, "x", None), [1, "x", None]),
        (1 << 70, str(1 << 70)),
        (True, True),
    ],
)
def test_values_take_a_plain_form(recorder, value, encoded):
    """Scalars, arrays, paths, times, enums and collections are carried; the object keeps the original."""
    with span("load", x=value) as load:
        pass

    assert load.encoded == {"x": encoded}
    assert load.attributes["x"] is value


def test_any_name_is_possible(recorder):
    """Names of our own parameters are attributes all the same, and what is no handler is taken for an attribute."""
    with span("a", attributes={"print_fn": 1, "plugins": 2}, name=3, self=4, store=5) as first:
        first.set({"attributes": 6}, self=7)
    with span("b", print_fn=8, plugins=9) as second:
        pass

    assert first.encoded == {"print_fn": 1, "plugins": 2, "name": 3, "self": 7, "store": 5, "attributes": 6}
    assert second.encoded == {"print_fn": 8, "plugins": 9}


def test_what_has_no_form_is_shortened_and_said_once(recorder):
    """An object that can't be carried is its repr, its neighbours are untouched, and one line a key says so."""
    for _ in range(20):
        with span("a", good=1, bad=object(), worse=Awkward(), big=np.zeros(10_000)) as made:
            pass

    assert made.encoded["good"] == 1
    assert made.encoded["bad"].startswith("<object object at")
    assert made.encoded["worse"] == "<Awkward>"
    assert len(made.encoded["big"]) <= 512
    assert len(recorder.said) == 3


def test_attributes_are_those_at_the_end(recorder):
    """What changes after the span has ended does not change the record."""
    names = ["a"]
    with span("load", names=names) as load:
        load.set(rows=3)
    names.append("b")

    assert load.encoded == {"names": ["a"], "rows": 3}


def test_an_oversized_span_is_dropped_and_its_duration_kept(recorder, book):
    """A record above the limit is counted as lost, and its time is in the row all the same."""
    recorder.max_record_bytes = 512
    with span("big", text="x" * 4096):
        pass

    assert not recorder.queue
    assert recorder.dropped == {"span: larger than max_record_bytes": 1}
    assert book.rows()[0].values["count/big"] == 1


def test_the_queue_is_bounded_in_bytes_and_counts_what_it_drops(recorder):
    """Bare spans and described ones stop at the limit; after a drain there is room again."""
    recorder.max_pending_bytes = 10 * 512
    for _ in range(12):
        with span("bare"):
            pass
    with span("described", text="x" * 100):
        pass
    assert (len(recorder.queue), recorder.dropped) == (10, {"span: queue full": 3})

    recorder.drain()
    with span("described", text="x" * 100):
        pass
    assert len(recorder.drain()) == 1
    assert recorder._pending_bytes == 0
