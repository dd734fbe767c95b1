from __future__ import annotations

import io
import threading

import pytest
from rich.console import Console
from tests.step_time.scenarios import SCENARIOS
from tests.support.step_time import EPOCH_NS, RunBuilder

from stepmeter.analysis.step_time.live import LiveStepTimeResult, LiveStepTimeSession
from stepmeter.live.sparkline import bar, sparkline
from stepmeter.live.terminal import draw, watch

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}

ONE_RANK = """\
INPUT-BOUND  critical  60.0 % of step time
why   Input wait is 60.0 % of the typical CPU step time: 60.0 ms of 100 ms.
next  Give the DataLoader more workers (num_workers) and persistent_workers=True; if they are busy,
      cache or simplify the work per sample, or move to faster storage.

run demo: steps 1 to 24 (24 steps, 1 rank, CPU clock)
live  newest step 2.50 s ago

step time  ▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅  100 ms to 100 ms

phase        share   median    worst  skew  where
input wait  60.0 %  60.0 ms  60.0 ms     -
forward     20.0 %  20.0 ms  20.0 ms     -
backward    15.0 %  15.0 ms  15.0 ms     -
optimizer    5.0 %  5.00 ms  5.00 ms     -
residual     0.0 %      0 s      0 s     -
step                 100 ms   100 ms     -
"""

TWO_RANKS_NARROW = """\
INPUT STRAGGLER  critical  71.4 % of step time
why   Rank 0 spends 100 ms in input wait, rank
      1 0 s; so rank 1 waits for it 100 ms in
      every step (71.4 % of its step time).
next  Inspect the input of rank 0: its shard,
      its storage, the CPU cores its workers
      share.
INPUT-BOUND  critical  35.7 % of step time

run straggler: steps 50 to 73 (24 steps, 2 of
2 ranks, CPU clock)
live  newest step 60.0 s ago

step time  =================  140 ms to 140 ms

phase        share   median
input wait  35.7 %  50.0 ms
h2d          0.0 %      0 s
forward     14.3 %  20.0 ms
backward    50.0 %  70.0 ms
optimizer    0.0 %      0 s
residual     0.0 %      0 s
step                 140 ms

rank  step time  off median
   0     140 ms       0.0 %
   1     140 ms       0.0 %
"""

FOUR_RANKS_WIDE = """\
SLOW RANK  critical  33.3 % of step time
why   Rank 3 takes 150 ms a step, 33.3 % of it beyond rank 0 (100 ms); the largest difference is backward with 50.0 ms.
next  Look at backward on rank 3: uneven work, a throttled or shared device, a busy host.

run wide: steps 1 to 24 (24 steps, 4 of 4 ranks, CPU clock)
live  newest step 0 s ago

step time  ▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅▅  100 ms to 100 ms

phase        share   median    worst     skew  where                   rank  step time  off median
input wait   5.0 %  5.00 ms  5.00 ms    0.0 %  rank 0 on worker-0         3     150 ms     +50.0 %  ████████████
h2d          5.0 %  5.00 ms  5.00 ms    0.0 %  rank 0 on worker-0         0     100 ms       0.0 %
forward     30.0 %  30.0 ms  30.0 ms    0.0 %  rank 0 on worker-0         1     100 ms       0.0 %
backward    45.0 %  45.0 ms  95.0 ms  111.1 %  rank 3 on worker-0         2     100 ms       0.0 %
optimizer   10.0 %  10.0 ms  10.0 ms    0.0 %  rank 0 on worker-0
residual     5.0 %  5.00 ms  5.00 ms    0.0 %  rank 0 on worker-0
step                 100 ms   150 ms   50.0 %  rank 3 on worker-0
"""

COLD = """\
NO DATA  info

run new
waiting for the first steps
next  `stepmeter summary new` says what the run holds so far.
"""


def result_of(run):
    with LiveStepTimeSession(run) as session:
        return session.refresh()


def text_of(result, title, now_ns, width, *, unicode=True):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(draw(result, title, now_ns, width, unicode=unicode))
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def test_one_rank_on_a_usual_terminal(tmp_path):
    """Verdict, why, next, freshness and age, trend, phases; h2d, which nobody measured, is absent."""
    phases = {"input_wait": 60.0, "h2d": None, "forward": 20.0, "backward": 15.0, "optimizer": 5.0, "traced": 40.0}
    run = RunBuilder(strategy="single").rank(0, range(1, 25), **phases).write(tmp_path)

    assert text_of(result_of(run), "demo", EPOCH_NS + 4_900_000_000, 100) == ONE_RANK


def test_two_ranks_on_a_narrow_terminal_without_blocks(tmp_path):
    """Sentences wrap, tables keep their first columns, and the trend is ASCII."""
    run = BY_NAME["ddp_rank_straggler"].build().write(tmp_path)
    result = result_of(run)

    text = text_of(result, "straggler", result.newest_ns + 60_000_000_000, 46, unicode=False)

    assert text == TWO_RANKS_NARROW
    assert text.isascii()


def test_four_ranks_on_a_wide_terminal(tmp_path):
    """Phases and ranks stand side by side, the slowest rank first."""
    builder = RunBuilder()
    for rank in range(3):
        builder.rank(rank, range(1, 25))
    run = builder.rank(3, range(1, 25), backward=95.0, traced=145.0).write(tmp_path)
    result = result_of(run)

    assert text_of(result, "wide", result.newest_ns, 140) == FOUR_RANKS_WIDE


def test_a_run_without_steps_says_that_it_waits(tmp_path):
    """There is no table, no age and no blame, but how to see what came instead of steps."""
    text = text_of(result_of(RunBuilder().write(tmp_path)), "new", EPOCH_NS, 100)

    assert text == COLD


@pytest.mark.parametrize("freshness", ["bridged", "expired"])
def test_a_reading_that_failed_is_told_with_its_reason(tmp_path, freshness):
    """Freshness is of the reading; whether anybody trains is told by the newest step's age."""
    good = result_of(RunBuilder().rank(0, range(1, 25)).write(tmp_path))

    text = text_of(LiveStepTimeResult(good.analysis, freshness, "disk on fire"), "demo", good.newest_ns, 100)

    assert f"\n{freshness}: " in text
    assert "\ndisk on fire\n" in text


@pytest.mark.parametrize("name", BY_NAME)
def test_each_scenario_is_drawn_with_its_findings_in_order(tmp_path, name):
    """Status and severity of every issue stand in the order of the contract."""
    result = result_of(BY_NAME[name].build().write(tmp_path))

    text = text_of(result, name, result.newest_ns, 100)

    words = {"info": "info", "warn": "warning", "crit": "critical"}
    lines = [f"{issue.status}  {words[issue.severity]}" for issue in result.analysis.diagnosis.issues]
    found = [text.index(line) for line in lines]
    assert [issue.kind for issue in result.analysis.diagnosis.issues] == [kind for kind, *_ in BY_NAME[name].issues]
    assert found == sorted(found)


@pytest.mark.parametrize("width", [20, 40, 70, 100, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path, width):
    """Nothing wraps by the terminal's own doing."""
    result = result_of(BY_NAME["jittered_ddp"].build().write(tmp_path))

    assert max(len(line) for line in text_of(result, "demo", result.newest_ns, width).splitlines()) <= width


def test_only_the_slowest_of_many_ranks_are_listed(tmp_path):
    """Of 20 ranks 16 have a line, and the rest is counted."""
    builder = RunBuilder()
    for rank in range(20):
        builder.rank(rank, range(1, 3), traced=95.0 + rank)
    text = text_of(result_of(builder.write(tmp_path)), "many", EPOCH_NS, 100)

    assert "and 4 ranks more" in text
    assert text.index("\n  19     ") < text.index("\n   4     ")


def test_watching_draws_until_told_to_stop(tmp_path):
    """The last picture stays, and the function returns at once when the event is set."""
    run = RunBuilder().rank(0, range(1, 25)).write(tmp_path)
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None, _environ={})
    stop = threading.Event()
    thread = threading.Thread(target=watch, args=(run, stop, console), kwargs={"interval_s": 3600.0})

    thread.start()
    stop.set()
    thread.join(timeout=60)

    assert not thread.is_alive()
    assert "run scenario: steps 1 to 24" in console.file.getvalue()


def test_a_sparkline_goes_from_the_least_to_the_greatest():
    """Eight levels; where values share a column the largest shows."""
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8, unicode=True) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 7, 0, 0], 2, unicode=True) == "█▁"
    assert sparkline([5.0, 5.0], 9, unicode=False) == "=="


def test_a_bar_is_as_long_as_its_share():
    """Half of twelve columns are six."""
    assert bar(0.5, 12, unicode=True) == "██████"
    assert bar(0.0, 12, unicode=False) == ""
