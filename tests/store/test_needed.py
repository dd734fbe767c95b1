"""Tests of which views a statement gets: as few as it names, and never too few."""

from __future__ import annotations

import shutil

import duckdb
import pytest
from tests.support.rows import step_row

from stepmeter.errors import StoreError
from stepmeter.store.catalog import PUBLIC_VIEWS, catalog_template, write_catalog
from stepmeter.store.needed import EVERYTHING, needed
from stepmeter.store.reader import open_run
from stepmeter.store.schema import STEPS, TABLES
from stepmeter.store.seal import seal, sealed_template
from stepmeter.store.segments import create_run, write_segment


@pytest.fixture
def run(tmp_path):
    """A run of two steps."""
    made = create_run(tmp_path, "run-1", "demo")
    write_segment(made, STEPS, [step_row(1), step_row(2)], "host-0", 1)
    return made


def names(sql):
    found = needed(sql)
    return found.views, tuple(table.name for table in found.tables)


def test_a_statement_gets_what_it_names_and_what_that_rests_on():
    """A view brings the views and tables that it is made of; nothing else is bound."""
    assert names("SELECT 1") == ((), ())
    assert names("FROM raw.logs") == (("logs",), ("logs",))
    assert names('SELECT count(*) FROM "Steps"') == (("steps",), ("steps",))
    assert names("FROM spans") == (("steps", "spans"), ("steps", "spans"))
    assert names("FROM step_phases") == (("steps", "step_phases"), ("steps",))


@pytest.mark.parametrize(
    "sql", ["SHOW ALL TABLES", "FROM duckdb_views()", "FROM information_schema.tables", "DESCRIBE"]
)
def test_a_statement_about_the_views_gets_all(sql):
    """What asks which views there are finds them all."""
    assert needed(sql) == EVERYTHING


def test_every_view_can_be_asked_for_alone(run):
    """Whichever view or table is asked for first, by a reader of its own, is there with all that it rests on."""
    for name in (*PUBLIC_VIEWS, *(f"raw.{table.name}" for table in TABLES)):
        with open_run(run) as reader:
            assert len(reader.snapshot().rows(f"SELECT count(*) FROM {name}")) == 1  # noqa: S608 - names of ours


def test_a_name_that_the_statement_spells_out_of_parts_is_found(run):
    """A query that makes up the name of a view as it runs works as well."""
    with open_run(run) as reader:
        assert reader.snapshot().rows("SELECT count(*) FROM query_table('ste' || 'ps')") == [(2,)]
        assert ("steps",) in reader.snapshot().answer("SHOW TABLES").rows


def test_a_wrong_name_is_told_which_is_near(run):
    """A name that is nearly one of a view is answered with that view's, although nothing named it before."""
    with open_run(run) as reader, pytest.raises(StoreError, match="step_phases"):
        reader.snapshot().rows("FROM step_phase")


def test_a_later_statement_sees_later_segments_through_a_view_that_is_bound(run):
    """A view that was bound for one statement shows the next snapshot's rows to another."""
    with open_run(run) as reader:
        assert reader.snapshot().rows("SELECT count(*) FROM spans") == [(2,)]
        write_segment(run, STEPS, [step_row(3)], "host-0", 2)
        assert reader.snapshot().rows("SELECT count(*) FROM spans") == [(3,)]
        assert reader.snapshot().rows("SELECT count(*) FROM steps") == [(3,)]


def surface(file):
    # DuckDB 1.5 prints the same view in other words than 2.0, which bound what the package brings
    text = "v.sql" if duckdb.__version__ >= "2" else "NULL"
    with duckdb.connect(str(file), read_only=True) as connection:
        return connection.execute(
            f"SELECT v.schema_name, view_name, {text}, v.comment, list((column_name, data_type, c.comment)) "  # noqa: S608 - ours
            "FROM duckdb_views() AS v JOIN duckdb_columns() AS c ON view_oid = table_oid "
            "WHERE NOT v.internal GROUP BY ALL ORDER BY ALL"
        ).fetchall()


def test_views_that_were_bound_before_are_those_that_a_run_would_bind(run, tmp_path, monkeypatch):
    """A run that copies its views and one that binds them have the same run.duckdb, comment for comment."""
    assert catalog_template().exists()
    built = tmp_path / "built" / "run.duckdb"
    built.parent.mkdir()
    monkeypatch.setattr("stepmeter.store.catalog.template_file", lambda *_: tmp_path / "missing")
    write_catalog(run, built)
    assert surface(built) == surface(run / "run.duckdb")


def test_a_run_that_is_sealed_into_a_file_of_bound_views_is_as_one_that_binds_them(run, tmp_path, monkeypatch):
    """A sealed run has the same views, columns, comments and rows with the file that the package brings and without."""
    assert sealed_template().exists()
    found = []
    for name in ("copies", "binds"):
        copied = tmp_path / name
        shutil.copytree(run, copied)
        assert seal(copied)
        with open_run(copied) as reader:
            rows = reader.snapshot().rows("SELECT * EXCLUDE (attributes), attributes FROM raw.steps ORDER BY step")
        found.append((surface(copied / "run.duckdb"), rows))
        monkeypatch.setattr("stepmeter.store.seal.template_file", lambda *_: tmp_path / "missing")
    assert found[0] == found[1]
    assert len(found[0][1]) == 2
