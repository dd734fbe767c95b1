"""Tests of `stepmeter relink`."""

from __future__ import annotations

import duckdb
import pytest
from tests.support.rows import step_row

from stepmeter.cli import main
from stepmeter.store.reader import open_run
from stepmeter.store.schema import STEPS
from stepmeter.store.seal import seal
from stepmeter.store.segments import create_run, write_segment


@pytest.fixture
def moved(tmp_path):
    """A run of one step that was moved."""
    run = create_run(tmp_path / "here", "run-1", "demo")
    write_segment(run, STEPS, [step_row(1)], "h", 1)
    (tmp_path / "there").mkdir()
    return run.rename(tmp_path / "there" / "demo")


def count(run):
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        return connection.execute("SELECT count(*) FROM steps").fetchone()[0]


def test_a_moved_run_is_found_again(moved, capsys):
    """Our own commands read a moved run as it is; any DuckDB client does after relink."""
    with open_run(moved) as reader:
        assert reader.snapshot().rows("SELECT count(*) FROM steps") == [(1,)]
    with pytest.raises(duckdb.IOException):
        count(moved)
    assert main(["relink", str(moved)]) == 0
    assert "rewritten" in capsys.readouterr().err
    assert count(moved) == 1


def test_a_sealed_run_needs_no_relink(moved, capsys):
    """A sealed run has no paths in it and is left as it is."""
    seal(moved)
    assert main(["relink", str(moved)]) == 0
    assert "sealed" in capsys.readouterr().err
    assert count(moved) == 1


def test_a_run_without_segments_is_one_line(moved, capsys):
    """A run of which only run.duckdb was copied can't be made good."""
    (moved / "data").rename(moved.parent / "gone")
    assert main(["relink", str(moved)]) == 4
    assert "copy the whole run" in capsys.readouterr().err
