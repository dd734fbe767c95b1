import json

import pytest
from tests.support.rows import MS, row
from tests.support.stored import run_of_rows

from stepmeter.report.html import page
from stepmeter.report.summary import summarize
from stepmeter.store.schema import LOGS
from stepmeter.store.segments import write_segment


@pytest.fixture
def run(tmp_path):
    """A run to which alerts are added as level, step, message and name of their rule."""
    made = run_of_rows(tmp_path, [{"loss": 1.0}])

    def with_alerts(*alerts):
        rows = [
            row(
                LOGS,
                run_id="run-1",
                event_name="stepmeter.alert",
                time_ns=number * MS,
                severity_text=level.upper(),
                body=message,
                step=step,
                attributes=json.dumps({"stepmeter.alert.name": name}),
                resource_id="r",
            )
            for number, (level, step, message, name) in enumerate(alerts)
        ]
        write_segment(made, LOGS, rows, "test", 2)
        return made

    return with_alerts


def test_each_rule_that_fired_is_a_line(run):
    """The gravest comes first; a rule that fired often is one line with its latest message and its steps."""
    found = run(
        ("warning", 3, "slow at 3", "slow"),
        ("error", 4, "ranks drift apart", "drift"),
        ("warning", 9, "slow at 9", "slow"),
        ("info", 10, "[recovered] slow at 9", "slow"),
    )

    lines = [line for line in summarize(found).text().splitlines() if line.startswith("alert")]

    assert lines == [
        "alert error    step 4                 ranks drift apart",
        "alert warning  steps 3 to 9, 2 times  slow at 9",
    ]


def test_many_rules_are_cut_short(run):
    """Ten are shown, and how the others are asked for."""
    text = summarize(run(*(("error", n, f"rule {n}", f"r{n}") for n in range(12)))).text()

    assert text.count("alert error") == 10
    assert 'and 2 more: stepmeter sql RUN "SELECT * FROM alerts"' in text


def test_the_report_has_them_too(run):
    """Markup in a message is text."""
    assert '<span class="chip crit">error</span></td><td>step 4</td><td>a &lt; b</td>' in page(
        summarize(run(("error", 4, "a < b", "r")))
    )


def test_a_run_without_alerts_says_nothing_of_them(run):
    """Neither text nor report has a heading for nothing."""
    found = summarize(run())

    assert "alert" not in found.text()
    assert "Alerts" not in page(found)
