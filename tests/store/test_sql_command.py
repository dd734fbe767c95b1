"""Tests of `stepmeter sql`."""

from __future__ import annotations

import csv
import io
import json

import pytest
from tests.support.rows import MS, step_row

from stepmeter.cli import main
from stepmeter.store.schema import STEPS
from stepmeter.store.segments import create_run, write_segment


@pytest.fixture(autouse=True)
def run(tmp_path, monkeypatch):
    """A run called demo with two steps."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))
    made = create_run(tmp_path, "run-1", "demo")
    write_segment(made, STEPS, [step_row(1), step_row(2, tokens=5)], "host-0", 1)
    return made


def test_rows_come_as_csv(capsys):
    """CSV has a line of names and one for each row; null is empty."""
    assert main(["sql", "demo", "SELECT step, tokens FROM steps ORDER BY step", "--format", "csv"]) == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [["step", "tokens"], ["1", ""], ["2", "5"]]


def test_rows_come_as_json(capsys):
    """JSON is a list of objects that any parser reads, whatever the values are."""
    query = (
        "SELECT step, tokens, forward_cpu_ns, 'nan'::DOUBLE AS n, [1, 2] AS l, {a: 'inf'::DOUBLE} AS s, "
        "DATE '2026-01-02' AS d, sum(step) OVER () AS total, 'x'::BLOB AS b FROM steps ORDER BY step LIMIT 1"
    )
    assert main(["sql", "run-1", query, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["step"], row["tokens"], row["forward_cpu_ns"], row["total"]) == (1, None, 3 * MS, 3)
    assert (row["n"], row["l"], row["s"], row["d"]) == ("nan", [1, 2], {"a": "inf"}, "2026-01-02")


def test_rows_come_as_a_table_with_whole_values(capsys):
    """A table that goes into a pipe is plain ASCII and cuts nothing off."""
    query = """SELECT step, repeat('x', 300) AS "[text]", '[red]' AS m FROM steps"""
    assert main(["sql", "demo", query]) == 0
    out = capsys.readouterr().out
    assert out.isascii()
    assert "x" * 300 in out
    assert "[text]" in out
    assert "[red]" in out


def test_a_run_is_named_by_its_paths_too(run, capsys):
    """The directory and the run.duckdb of a run are names for it."""
    for reference in (run, run / "run.duckdb"):
        assert main(["sql", str(reference), "SELECT count(*) AS n FROM steps", "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == [{"n": 2}]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["demo"], 2, "QUERY"),
        (["other", "SELECT 1"], 3, 'no run "other"'),
        (["demo", "SELECT nope FROM steps"], 4, 'column "nope" not found'),
        (["demo", "DELETE FROM raw.steps"], 4, "read-only"),
        (["demo", "FROM read_csv('/etc/hostname')"], 4, "disabled by configuration"),
        (["demo", "SELECT 'a'::INTEGER"], 4, "Could not convert string"),
    ],
)
def test_an_error_is_one_line_and_a_code(capsys, arguments, code, message):
    """Missing arguments, an unknown run and a wrong query each have their code and one line on stderr."""
    assert main(["sql", *arguments]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
