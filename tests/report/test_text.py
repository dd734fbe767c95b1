from __future__ import annotations

import pytest
from tests.support.step_time import RunBuilder

from stepmeter.report.parts import labelled, render_text
from stepmeter.report.summary import summarize

INPUT_BOUND = """\
INPUT-BOUND  critical  60.0 % of step time
why   Input wait is 60.0 % of the typical CPU step time: 60.0 ms of 100 ms.
next  Give the DataLoader more workers (num_workers) and persistent_workers=True; if they are busy,
      cache or simplify the work per sample, or move to faster storage.

run demo: steps 2 to 25 (24 steps, 1 rank, CPU clock, 1 in warm-up left out)

section      finding      severity
step time    INPUT-BOUND  critical
system       NO DATA      info
process      NO DATA      info
step memory  NO GPU       info
energy       NO DATA      info

phase        share   median    worst  skew  where
input wait  60.0 %  60.0 ms  60.0 ms     -
forward     15.0 %  15.0 ms  15.0 ms     -
backward    15.0 %  15.0 ms  15.0 ms     -
optimizer    5.0 %  5.00 ms  5.00 ms     -
residual     5.0 %  5.00 ms  5.00 ms     -
step                 100 ms   100 ms     -
"""


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    """A run of 25 steps, 60 of whose 100 ms are input wait."""
    builder = RunBuilder(strategy="single")
    builder.rank(
        0, range(1, 26), warmup=1, input_wait=60.0, h2d=None, forward=15.0, backward=15.0, optimizer=5.0, traced=40.0
    )
    return summarize(builder.write(tmp_path_factory.mktemp("runs"), name="demo"))


def test_the_text_is_verdict_why_next_and_tables(summary):
    """The whole screen, in plain ASCII; an unmeasured phase (h2d) has no row."""
    assert summary.text() == INPUT_BOUND


def test_on_a_terminal_it_has_colours_and_the_same_words(summary):
    """The verdict is red, and without the escapes it is the same verdict."""
    text = summary.text(color=True)

    assert text.startswith("\x1b[1;31mINPUT-BOUND")
    assert "60.0 ms" in text


@pytest.mark.parametrize("width", [40, 60, 200])
def test_it_fits_the_width(summary, width):
    """Sentences wrap; no line is wider than the terminal."""
    assert max(len(line) for line in summary.text(width).splitlines()) <= width


def test_short_times_are_ascii_too(tmp_path):
    """Microseconds are written with a u."""
    builder = RunBuilder().rank(0, range(1, 25), **dict.fromkeys(("input_wait", "h2d", "forward"), 0.01))
    text = summarize(builder.write(tmp_path)).text()

    assert "10.0 us" in text
    assert text.isascii()


def test_ranks_are_compared_by_name_and_host(tmp_path):
    """The worst rank of each phase and its host stand in the last column."""
    builder = RunBuilder().rank(0, range(1, 25)).rank(1, range(1, 25), forward=40.0)

    text = summarize(builder.write(tmp_path)).text()

    line = next(line for line in text.splitlines() if line.startswith("forward"))
    assert line.split() == [
        "forward",
        "35.0",
        "%",
        "35.0",
        "ms",
        "40.0",
        "ms",
        "14.3",
        "%",
        "rank",
        "1",
        "on",
        "worker-0",
    ]


def test_holes_in_the_record_are_said_before_the_reason(tmp_path):
    """The verdict is a critical one; that 3 % of the steps are missing comes right after it."""
    gaps = {60, 61, 62, 63}
    builder = RunBuilder().rank(0, [number for number in range(1, 121) if number not in gaps], input_wait=60.0)

    lines = summarize(builder.write(tmp_path)).text().splitlines()

    assert lines[0].startswith("INPUT-BOUND  critical")
    assert lines[1].startswith("note  4 of 120 steps (3.3 %) never reached the store")
    assert lines[2].startswith("why")


def test_further_findings_follow_with_their_reasons(tmp_path):
    """Each has its own verdict, why and next."""
    builder = RunBuilder().rank(0, range(1, 25), input_wait=20.0, forward=10.0)

    text = summarize(builder.write(tmp_path)).text()

    assert text.startswith(("RESIDUAL-HEAVY", "INPUT-BOUND"))
    assert text.count("\nwhy ") == 2
    assert text.count("\nnext") == 2


def test_a_restarted_run_says_which_attempt_it_is_about(tmp_path):
    """Only the latest attempt is judged, and the line on the run says so."""
    builder = RunBuilder().rank(0, range(1, 25)).rank(0, range(1, 11), attempt=1)

    text = summarize(builder.write(tmp_path, name="again")).text()

    assert "run again: steps 1 to 10 (10 steps, 1 rank, CPU clock, latest of 2 attempts)" in text


@pytest.mark.parametrize("width", range(24, 40))
def test_no_line_ends_between_a_number_and_its_unit(width):
    """Wherever a sentence is cut, 59.1 % and 84.5 ms stay whole."""
    text = render_text([labelled("why", "Backward takes 84.5 ms (59.1 %) of 143 ms.")], width=width, color=False)

    assert "84.5 ms" in text
    assert "59.1 %" in text
    assert "143 ms" in text
    assert max(map(len, text.splitlines())) <= width
