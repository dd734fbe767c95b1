import json

import pytest
from tests.support.stored import run_of_spans, span_row

from stepmeter.cli import main


@pytest.fixture
def run(tmp_path):
    return run_of_spans(tmp_path / "runs", [span_row(n, f"s{n}", n * 1000, n * 1000 + 500, step=n) for n in range(10)])


def test_trace_writes_a_file_and_says_what_is_in_it(run, tmp_path, capsys):
    """The number of spans is said on stderr; the file is a trace."""
    assert main(["trace", str(run), "-o", str(tmp_path / "t.json"), "--step-range", "2:5"]) == 0

    assert "wrote 3 spans" in capsys.readouterr().err
    assert json.loads((tmp_path / "t.json").read_text())["displayTimeUnit"] == "ms"


def test_time_is_given_in_unix_seconds(run, tmp_path, capsys):
    """`--time-range` takes seconds; either end may be left out."""
    main(["trace", str(run), "-o", str(tmp_path / "t.json"), "--time-range", "7.2:"])

    assert "wrote 3 spans" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["--step-range", "5"],
        ["--step-range", "a:b"],
        ["--time-range", "nan:1"],
        ["--time-range", "1e300:"],
        ["--temp-dir", "/nothing/here"],
        ["--merge", "/nothing/here"],
    ],
)
def test_wrong_arguments_are_one_line(run, tmp_path, capsys, words):
    """A wrong range or path exits with 2 and writes nothing."""
    assert main(["trace", str(run), "-o", str(tmp_path / "t.json"), *words]) == 2

    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "t.json").exists()


def test_a_place_that_can_not_be_written_is_one_line(run, capsys):
    """An output in a directory that is not there exits with 4."""
    assert main(["trace", str(run), "-o", "/nothing/here/t.json"]) == 4

    assert "can't be written" in capsys.readouterr().err


def test_a_selection_of_nothing_is_told(run, tmp_path, capsys):
    """An empty timeline is written as asked, and it is said that the options are why."""
    assert main(["trace", str(run), "-o", str(tmp_path / "t.json"), "--rank", "7"]) == 0

    assert "wrote 0 spans" in (said := capsys.readouterr().err)
    assert "(nothing of the run is in that selection)" in said
