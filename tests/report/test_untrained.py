import shlex

import pytest
from tests.support.step_time import RunBuilder
from tests.support.stored import run_of_rows, run_of_spans, span_row

from stepmeter.cli import main
from stepmeter.report.html import page
from stepmeter.report.summary import summarize


def call(number, start_ms, end_ms):
    return span_row(number, "chat", start_ms, end_ms, scope_name="openai", attributes={"gen_ai.operation.name": "chat"})


@pytest.fixture
def agent(tmp_path):
    """Two calls of a model, three spans of the program's own, one of another library."""
    own = [span_row(n, name, n * 10, n * 10 + 5) for n, name in ((1, "task"), (2, "task/plan"), (3, "task/act"))]
    other = span_row(4, "GET", 40, 45, scope_name="urllib3", path=None)
    return run_of_spans(tmp_path, [*own, other, call(5, 50, 55), call(6, 60, 65)])


def test_an_agents_run_is_told_as_one(agent):
    """A run of calls and spans says so, and how they are looked at, instead of asking for an optimizer."""
    text = " ".join(summarize(agent).text().split())

    assert text.startswith(
        "NO TRAINING info why The run holds no training step, but 2 calls of models or tools, 3 spans of its own and "
        "1 other span. next `stepmeter energy RUN --genai` prices the calls; `stepmeter energy RUN --spans "
        "task` prices the spans of that path; `stepmeter trace RUN` draws all spans."
    )


def test_programs_find_the_counts_under_the_stable_kind(agent):
    """The kind stays NO_DATA, and what is there instead stands in its evidence."""
    found = summarize(agent).document["step_time"]["diagnosis"]

    assert (found["kind"], found["status"], found["severity"]) == ("NO_DATA", "NO TRAINING", "info")
    assert found["evidence"] == {
        "recorded_steps": 0,
        "genai_calls": 2,
        "own_spans": 3,
        "other_spans": 1,
        "logged_rows": 0,
    }
    report = page(summarize(agent))
    assert "no training step, but 2 calls" in report
    assert "<title>demo: NO TRAINING</title>" in report


def test_logged_rows_alone_are_told_too(tmp_path):
    """A program that only logs is sent to its rows."""
    text = " ".join(summarize(run_of_rows(tmp_path, [{"loss": 1.0}])).text().split())

    assert "no training step, but 1 logged row. next `stepmeter sql RUN" in text


def test_a_training_is_asked_nothing(tmp_path):
    """With steps nothing is counted beside them."""
    run = RunBuilder().rank(0, range(1, 25)).write(tmp_path)

    assert summarize(run).analysis.untrained is None


def test_energy_without_steps_names_the_spans(tmp_path, capsys):
    """Without steps the text names a path to price; a path that no span has, those that there are."""
    run = str(run_of_spans(tmp_path, [span_row(1, "task", 0, 5), span_row(2, "eval", 10, 15)]))

    assert main(["energy", run]) == 0
    assert capsys.readouterr().out.endswith("--spans task prices those of that path.\n")
    assert main(["energy", run, "--spans", "tusk"]) == 0
    assert capsys.readouterr().out.endswith("\nSpans of the run have the paths eval, task.\n")


def test_a_path_is_written_as_a_shell_takes_it(tmp_path):
    """Blanks and quotes in a span's name do not break the command that is shown."""
    found = summarize(run_of_spans(tmp_path, [span_row(1, "it's mine", 0, 5)])).analysis.untrained

    assert shlex.split(found.questions("r")[0][0]) == ["stepmeter", "energy", "r", "--spans", "it's mine"]
