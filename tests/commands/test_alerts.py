import pytest
from tests.support.stored import run_of_rows

from stepmeter.cli import main


@pytest.fixture
def run(tmp_path):
    """A stored run of 6 rows whose loss is 1, 3, 3, NaN, 1, 5."""
    return run_of_rows(tmp_path, [{"loss": loss} for loss in (1, 3, 3, "NaN", 1, 5)])


def test_explain_writes_a_rule_as_it_is_understood(capsys):
    """Condition in canonical form, level, message, metrics and what its functions give."""
    assert main(["alerts", "explain", "mean(abs(g)[50])>2&&g<9 => err: high"]) == 0

    out = capsys.readouterr().out
    assert "condition  mean(abs(g)[50]) > 2 and g < 9" in out
    assert "level      error" in out
    assert "mean       arithmetic mean" in out


def test_a_wrong_rule_is_one_line_with_its_column(capsys):
    """A wrong rule exits with 2 and points at the column."""
    assert main(["alerts", "explain", "mean(loss[) > 1"]) == 2

    assert capsys.readouterr().err.startswith("stepmeter: alert rule, column 11:")


def test_test_says_where_a_rule_would_have_fired(run, capsys):
    """Over a stored run each firing and each recovery is a line, and the number is the last."""
    assert main(["alerts", "test", "loss > 2 => error: loss {loss}", "--run", str(run)]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "step 1  error  loss 3",
        "step 4  info  [recovered] loss 1",
        "step 5  error  loss 5",
        "2 fired over 6 rows",
    ]


def test_values_that_are_not_finite_are_numbers_again(run, capsys):
    """NaN, which the store holds as text, is NaN to a rule."""
    main(["alerts", "test", "isnan(loss)", "--run", str(run)])

    assert "1 fired over 6 rows" in capsys.readouterr().out


def test_a_run_that_is_not_there_is_said(tmp_path, capsys):
    """An unknown run exits with 3."""
    assert main(["alerts", "test", "loss > 2", "--run", str(tmp_path / "nothing")]) == 3


def test_a_rule_over_ranks_sees_all_of_a_stored_run(run, capsys):
    """With `loss@max` the rows of every rank are laid side by side; `explain` says who evaluates it."""
    assert main(["alerts", "test", "loss@max > 2 => error: loss {loss@max}", "--run", str(run)]) == 0
    assert "step 1  error  loss 3" in capsys.readouterr().out
    assert main(["alerts", "explain", "loss@max > 2"]) == 0
    assert "the collector" in capsys.readouterr().out


def test_a_metric_that_no_row_has_is_told(run, capsys):
    """A misspelt name fires nothing and looks like good news; a line on stderr says what was meant."""
    assert main(["alerts", "test", "lss > 2 => error", "--run", str(run)]) == 0

    out, err = capsys.readouterr()
    assert out == "0 fired over 6 rows\n"
    assert err == "stepmeter: alert rules name 'lss', which was never logged; did you mean loss?\n"


def test_a_rank_or_stream_without_rows_names_those_that_have_some(run, tmp_path, capsys):
    """Rows of another rank or stream are there: the options that choose them are said."""
    assert main(["alerts", "test", "loss > 2", "--run", str(run), "--rank", "3"]) == 0
    assert capsys.readouterr().err == f"stepmeter: {run} has no such rows; those that there are: --rank 0\n"

    of_data = run_of_rows(tmp_path / "more", [{"loss": 1}], stream="data")
    assert main(["alerts", "test", "loss > 2", "--run", str(of_data)]) == 0
    assert capsys.readouterr().err.endswith(": --rank 0 --stream data\n")


def test_a_run_without_rows_says_where_rows_come_from(tmp_path, capsys):
    """Nothing was logged: no rule can fire."""
    run = str(run_of_rows(tmp_path, []))

    assert main(["alerts", "test", "loss > 2", "--run", run]) == 0
    assert capsys.readouterr() == (
        "0 fired over 0 rows\n",
        f"stepmeter: {run} holds no rows; stepmeter.log() makes them\n",
    )
