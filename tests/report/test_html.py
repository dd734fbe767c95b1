from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from tests.step_time.scenarios import SCENARIOS
from tests.support.step_time import RunBuilder

from stepmeter.cli import main
from stepmeter.errors import StoreError
from stepmeter.report.charts import nice_scale, stacked_bar, step_series
from stepmeter.report.html import page, write_html
from stepmeter.report.summary import summarize

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
VOID = {"meta", "line", "polyline"}


class Page(HTMLParser):
    """Collects what a page says and needs; a tag that is not closed is an error."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.links, self.tags = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in {"src", "href"}]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def page_of(builder, directory, name="demo"):
    return page(summarize(builder.write(directory, run_id=name, name=name)))


@pytest.mark.parametrize("name", BY_NAME)
def test_each_scenario_has_a_page_with_its_findings_in_order(tmp_path, name):
    """Status of every issue of the contract, and nothing that the page would have to fetch or run."""
    summary = summarize(BY_NAME[name].build().write(tmp_path, name=name))

    found = Page(page(summary))

    statuses = [issue.status for issue in summary.analysis.step_time.diagnosis.issues]
    places = [found.text.index(status) for status in statuses]
    assert places == sorted(places)
    assert found.links == []
    assert "script" not in found.tags


def test_names_from_outside_are_escaped(tmp_path):
    """A run may be called what it likes."""
    text = page_of(RunBuilder().rank(0, range(1, 25)), tmp_path, "<script>alert(1)</script>")

    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_an_unmeasured_phase_is_absent(tmp_path):
    """No h2d, no row of it and no colour of it."""
    text = page_of(RunBuilder().rank(0, range(1, 25), h2d=None), tmp_path)

    assert "h2d" not in Page(text).text
    assert 'class="swatch p1"' not in text


def test_a_run_without_steps_has_a_page(tmp_path):
    """It says what to check, and draws nothing."""
    found = Page(page_of(RunBuilder(), tmp_path))

    assert "NO DATA" in found.text
    assert "svg" not in found.tags


def test_readings_have_their_tables(tmp_path):
    """What hosts measured stands in the section on the system."""
    builder = RunBuilder().rank(0, range(1, 25))
    builder.read("system.cpu.utilization", 0.9)

    text = Page(page_of(builder, tmp_path)).text

    assert "HIGH CPU" in text
    assert "cpu share 90.0 % 90.0 %" in text


def test_light_and_dark_define_the_same_colours(tmp_path):
    """Each variable of the light style has its dark counterpart."""
    style = page_of(RunBuilder().rank(0, range(1, 25)), tmp_path).partition("<style>")[2].partition("</style>")[0]
    light, dark = (set(re.findall(r"(--\w+):", block)) for block in re.findall(r":root\{([^}]*)\}", style))

    assert light == dark
    assert set(re.findall(r"var\((--\w+)\)", style)) <= light


def test_a_long_series_is_drawn_with_as_many_points_as_show(tmp_path):
    """Ten thousand steps become 600 points, of which the one with the spike shows it."""
    values = [100.0] * 10_000
    values[5_000] = 900.0

    svg = step_series(range(10_000), values, None)

    points = re.search(r'points="([^"]*)"', svg).group(1).split()
    assert len(points) == 600
    assert len({point.split(",")[1] for point in points}) == 2


@pytest.mark.parametrize(
    ("largest", "scale"), [(100.0, (100.0, 25.0)), (101.0, (150.0, 50.0)), (7.0, (8.0, 2.0)), (0.0, (1.0, 1.0))]
)
def test_scales_have_round_ticks(largest, scale):
    """At most five ticks, at 1, 2, 2.5 or 5 times a power of ten."""
    assert nice_scale(largest) == pytest.approx(scale)


def test_a_bar_without_time_is_none():
    """Nothing is drawn of nothing."""
    assert stacked_bar([("forward_ms", 0.0)], "empty") == ""


def test_the_command_writes_the_page_and_still_prints(tmp_path, capsys):
    """The verdict on standard output, the file beside, and a word on standard error."""
    run = RunBuilder().rank(0, range(1, 25), input_wait=60.0).write(tmp_path)

    assert main(["summary", str(run), "--html", str(tmp_path / "report.html")]) == 0

    out, err = capsys.readouterr()
    assert out.startswith("INPUT-BOUND")
    assert err == f"wrote {tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_place_that_is_not_there_is_one_clear_error(tmp_path):
    """The message says what to give."""
    summary = summarize(RunBuilder().rank(0, range(1, 25)).write(tmp_path))

    with pytest.raises(StoreError, match="give a file in a directory that exists"):
        write_html(summary, tmp_path / "nowhere" / "report.html")
