import re

import pytest

from stepmeter import span


def printed(lines):
    return [re.sub(r"\d\d:\d\d:\d\d", "T", re.sub(r"[\d.]+ms", "Dms", line)) for line in lines]


def test_a_tree_is_printed_by_one_argument(recorder):
    """Children inherit the handler and are indented by two spaces a level."""
    lines = []
    with span("step", print_fn=lines.append), span("forward"):
        pass

    assert printed(lines) == ["-> step  T", "  -> forward  T", "  <- forward  T  Dms", "<- step  T  Dms"]


def test_indentation_begins_where_printing_began(recorder):
    """A handler deep inside starts at the margin; one of its own or None takes over the subtree."""
    lines, own = [], []
    with (
        span("a"),
        span("b", print_fn=lines.append),
        span("c", print_fn=own.append),
        span("d", print_fn=None),
        span("e"),
    ):
        pass

    assert printed(lines) == ["-> b  T", "<- b  T  Dms"]
    assert printed(own) == ["-> c  T", "<- c  T  Dms"]


def test_a_failed_span_says_what_failed(recorder):
    """The last line of a failed span ends with its error."""
    lines = []
    with pytest.raises(ValueError), span("a", print_fn=lines.append):
        raise ValueError

    assert lines[-1].endswith("!ValueError")


def test_a_handler_that_raises_is_passed_over_and_named_once(recorder):
    """A print_fn that fails 20 times breaks nothing and is one line."""

    def broken(_):
        raise OSError("closed")

    for _ in range(10):
        with span("a", print_fn=broken):
            pass

    assert len(recorder.queue) == 10
    assert len(recorder.said) == 1


def test_spans_print_without_anything_recording():
    """Without a run and a session, spans time and print, and record nothing."""
    lines = []
    with span("a", print_fn=lines.append) as a:
        pass

    assert printed(lines) == ["-> a  T", "<- a  T  Dms"]
    assert a.duration_ms > 0
