import json
import threading

import pytest
from tests.support.recorded import recorded_spans
from tests.support.simulated_nvml import Power, python_under_nvml

from stepmeter import span, start_span
from stepmeter.capture.aggregation import MEANS
from stepmeter.plugins.gpu_energy import GpuEnergy
from stepmeter.plugins.overlap import Overlaps
from stepmeter.samplers import feed as feeds
from stepmeter.samplers.feed import EnergyFeed
from stepmeter.samplers.ticks import Tick

MS = 1_000_000


def ticking(*energies_j, every_ms=100, first_ms=0):
    """A feed whose counter moved each 100 ms, at moments known exactly."""
    feed = EnergyFeed(limit_w=400)
    for number, energy_j in enumerate(energies_j):
        at_ns = (first_ms + number * every_ms) * MS
        feed.tick(Tick(at_ns, at_ns, energy_j * 1000))
    return feed


def move(feed, at_ms, energy_j):
    feed.tick(Tick(at_ms * MS, at_ms * MS, energy_j * 1000))


def joules(measured):
    return tuple(None if value is None else round(value / 1000, 1) for value in measured)


def test_whole_intervals_are_exact():
    """A span from one move of the counter to another has their difference, with bounds as close as readings allow."""
    feed = ticking(0, 20)  # 200 W
    mark = feed.mark(100 * MS)
    for at_ms, energy_j in ((200, 50), (300, 60)):
        move(feed, at_ms, energy_j)

    found = feed.since(mark, 300 * MS)
    assert joules(found) == (40, 40, 40)


def test_parts_of_intervals_are_shared_out_evenly_within_bounds():
    """Half of an interval of 30 J is 15 J; it can't be more than what the board can draw, nor less than the rest."""
    feed = ticking(0, 20)
    mark = feed.mark(150 * MS)
    move(feed, 200, 50)

    value, lower, upper = feed.since(mark, 200 * MS)
    assert value == 15_000
    # 440 W at most: of 30 J the other half takes 22 J at most, and this one 22 J at most
    assert (lower, upper) == (pytest.approx(8000 - 2), pytest.approx(22_000 + 2))


def test_what_the_counter_has_not_shown_yet_is_put_at_its_last_power():
    """After the last move a span goes on at the power before it, between half the least and the most there can be."""
    feed = ticking(0, 20, 40)
    mark = feed.mark(210 * MS)

    value, lower, upper = feed.since(mark, 260 * MS)
    assert value == pytest.approx(200_000 * 0.05)
    assert (lower, upper) == (pytest.approx(5000 - 2), pytest.approx(22_000 + 2))


def test_a_move_that_is_known_only_later_counts_as_before_the_span():
    """A span that begins after the counter moved, and before that was noticed, is not given what came before."""
    feed = ticking(0, 20)
    mark = feed.mark(205 * MS)
    move(feed, 200, 80)
    move(feed, 300, 100)

    assert feed.since(mark, 300 * MS).value_mj == pytest.approx(19_000)


@pytest.mark.parametrize("energies_j", [(), (5,)])
def test_a_counter_without_rhythm_gives_nothing(energies_j):
    """Before the second move nothing is known of the power."""
    feed = ticking(*energies_j)

    assert feed.since(feed.mark(10 * MS), 20 * MS) is None


def test_a_counter_that_began_anew_or_stands_still_gives_nothing():
    """A driver that was loaded again inside a span, or a counter of 6 s ago, is no measurement."""
    feed = ticking(0, 20, 40)
    mark = feed.mark(210 * MS)
    move(feed, 300, 1)
    move(feed, 400, 21)

    assert feed.since(mark, 400 * MS) is None
    assert feed.since(feed.mark(410 * MS), 6500 * MS) is None
    assert feed.since(feed.mark(410 * MS), 420 * MS) is not None


def test_a_board_without_a_counter_is_integrated_and_has_no_bounds():
    """Power samples are added up as trapezoids."""
    feed = EnergyFeed(has_counter=False)
    feed.power(0, 100)
    feed.power(100 * MS, 100)
    mark = feed.mark(100 * MS)
    feed.power(200 * MS, 300)

    assert joules(feed.since(mark, 200 * MS)) == (20, None, None)


def test_a_long_span_keeps_two_moments():
    """100,000 moves inside a span leave no more behind than one."""
    feed = ticking(0, 20)
    mark = feed.mark(100 * MS)
    for number in range(2, 100_002):
        move(feed, number * 100, number * 20)

    assert feed.since(mark, 10_000_100 * MS).value_mj == 2_000_000 * 1000
    assert feed._waiting == []


def test_bounds_are_those_of_the_analysis():
    """Headroom and troughs are assumed alike in the process and afterwards."""
    from stepmeter.analysis.energy import attribution

    names = ("LIMIT_HEADROOM", "UNKNOWN_LIMIT_HEADROOM", "TROUGH_SHARE")
    assert [getattr(feeds, name) for name in names] == [getattr(attribution, name) for name in names]


def test_spans_side_by_side_share_and_nested_ones_do_not():
    """Of 100 ms, 50 alone and 50 beside another are a share of 0.75; a span inside another is a part of it."""
    overlaps = Overlaps()
    overlaps.begin(1, [], 0)
    overlaps.begin(2, [1], 20)
    assert overlaps.end(2, 40) == 1
    overlaps.begin(3, [], 50)
    assert overlaps.end(1, 100) == 0.75
    assert overlaps.end(3, 150) == 0.75


def test_children_share_what_their_parent_has():
    """Beside another span, each of two concurrent children has a quarter."""
    overlaps = Overlaps()
    overlaps.begin(1, [], 0)
    overlaps.begin(2, [], 0)
    for child in (3, 4):
        overlaps.begin(child, [1], 0)

    assert [overlaps.end(each, 10) for each in (3, 4, 1, 2)] == [0.25, 0.25, 0.5, 0.5]


def test_a_child_that_outlives_its_parent_goes_on():
    """A span whose measured parent has ended counts as one of those beside it."""
    overlaps = Overlaps()
    overlaps.begin(1, [], 0)
    overlaps.begin(2, [1], 0)
    overlaps.end(1, 10)
    overlaps.begin(3, [], 10)

    assert overlaps.end(2, 20) == 0.75
    assert len(overlaps) == 1


def test_the_share_is_a_mean_in_a_row():
    """Joules of repeated spans are added, and shares are means by duration."""
    assert "gpu_energy_share" in MEANS


@pytest.fixture
def board(monkeypatch):
    """A device that somebody follows, with a counter that the test moves."""
    from stepmeter.plugins import gpu_energy

    monkeypatch.setattr(feeds, "_feeds", {})
    monkeypatch.setattr(gpu_energy, "_devices", {})
    feed = feeds.feed_of("GPU-1")
    feed.followers = 1
    return feed


def test_overlapping_spans_are_labelled(board):
    """Two spans at once both have the device's energy, and say that half of it is theirs."""
    import time

    now_ms = time.monotonic_ns() // MS
    for number in range(3):
        move(board, now_ms - 300 + number * 100, 20 * number)
    with recorded_spans() as (_, book):
        first = start_span("a", plugins=[GpuEnergy(find_uuid=lambda: "GPU-1")])
        done = threading.Event()

        def beside():
            with span("b", plugins=[GpuEnergy(find_uuid=lambda: "GPU-1")]):
                time.sleep(0.02)
            done.set()

        thread = threading.Thread(target=beside)
        thread.start()
        assert done.wait(10)
        thread.join()
        first.end()
        book.commit_open()
        (row,) = book.rows()

    assert row.values["gpu_energy_share/b"] == 0.5
    assert 0.5 <= row.values["gpu_energy_share/a"] < 1
    assert row.values["gpu_energy_lower_j/a"] <= row.values["gpu_energy_j/a"] <= row.values["gpu_energy_upper_j/a"]


MEASURED = """
import json, sys, time
import stepmeter
from stepmeter.plugins import GpuEnergy
stepmeter.init(name="r", dir=sys.argv[1] if len(sys.argv) > 1 else "runs")
plugin = GpuEnergy()
with stepmeter.span("warm", plugins=[plugin]):
    time.sleep(0.5)
found = []
for length_s in (0.45, 0.2, 0.03, 0.45, 0.2):
    with stepmeter.span("work", plugins=[plugin]) as work:
        time.sleep(length_s)
    found.append((work.start_ns, work.end_ns, work.metrics))
stepmeter.finish()
print(json.dumps(found))
"""


def test_joules_are_within_their_bounds_on_a_simulated_board(tmp_path, monkeypatch):
    """Beside a run that follows the counter, the truth of five spans of 30 to 450 ms is inside the bounds of each."""
    monkeypatch.chdir(tmp_path)
    power = Power([(350, 0.07), (120, 0.05)])
    said = python_under_nvml(MEASURED, "H100:0x1a", **power.environ(tmp_path / "power"), OTEL_TRACES_EXPORTER="none")

    for start_ns, end_ns, metrics in json.loads(said):
        truth_j = power.energy_j(start_ns, end_ns)
        assert metrics["gpu_energy_lower_j"] <= truth_j <= metrics["gpu_energy_upper_j"]
        if end_ns - start_ns > 150 * MS:
            assert metrics["gpu_energy_j"] == pytest.approx(truth_j, rel=0.4)
        assert metrics["gpu_energy_share"] == 1


ALONE = """
import threading, time
from stepmeter import span
from stepmeter.plugins import GpuEnergy
from tests.support.recorded import recorded_spans
with recorded_spans():
    with span("x", plugins=[GpuEnergy()]) as x:
        time.sleep(0.5)
print(sorted(x.metrics))
deadline = time.monotonic() + 20
while time.monotonic() < deadline and any(t.name == "stepmeter-energy" for t in threading.enumerate()):
    time.sleep(0.05)
print([t.name for t in threading.enumerate() if t.name.startswith("stepmeter")])
"""


def test_where_nobody_follows_the_counter_the_plugin_does(tmp_path):
    """Without a run a thread of the plugin follows the device, and ends by itself after the last span."""
    said = python_under_nvml(ALONE, "H100:0x1a", PYTHONPATH=".")

    metrics, threads = said.splitlines()
    assert metrics == "['gpu_energy_j', 'gpu_energy_lower_j', 'gpu_energy_share', 'gpu_energy_upper_j']"
    assert threads == "[]"


def test_without_a_gpu_it_is_said_once():
    """A machine without NVML gives spans without energy and one line."""
    with recorded_spans() as (recorder, _):
        for _ in range(3):
            start_span("x", plugins=[GpuEnergy()]).end()

        assert len(recorder.said) == 1
        assert "GpuEnergy" in recorder.said[0]
