"""Tests of how a run is found, opened and read."""

from __future__ import annotations

import json
import shutil

import duckdb
import numpy as np
import pytest
from tests.support.rows import MS, row, step_row

from stepmeter.conventions.phases import PHASES
from stepmeter.errors import RunNotFoundError, StoreError, StoreVersionError
from stepmeter.store.reader import find_run, open_run
from stepmeter.store.schema import METRIC_POINTS, RESOURCES, SPANS, STEPS
from stepmeter.store.segments import create_run, write_segment


@pytest.fixture
def run(tmp_path):
    """A run without rows."""
    return create_run(tmp_path, "run-1", "demo")


def test_a_run_is_found_by_directory_catalog_name_and_id(run, tmp_path, monkeypatch):
    """A run directory, its run.duckdb, its name and its id all lead to the run."""
    monkeypatch.setenv("STEPMETER_DIR", str(tmp_path))
    assert find_run(run) == find_run(run / "run.duckdb") == run
    assert find_run("demo") == find_run("run-1") == find_run("demo", tmp_path) == run


@pytest.mark.parametrize("name", ["big run", "../up", "größer"])
def test_a_name_that_is_no_directory_finds_its_run_too(tmp_path, name):
    """What was typed as a run's name is what it is asked for by, whatever its directory had to be called."""
    made = create_run(tmp_path, "run-1", name)

    assert made.parent == tmp_path
    assert find_run(name, tmp_path) == made


def test_a_run_that_is_not_there_is_named_beside_those_that_are(run, tmp_path):
    """The error for an unknown run is one line that says which runs there are."""
    with pytest.raises(RunNotFoundError, match=r'^no run "other"; .* has demo$'):
        find_run("other", tmp_path)
    with pytest.raises(RunNotFoundError, match="has no runs; start one"):
        find_run("other", tmp_path / "nowhere")


def test_a_newer_store_is_refused(run):
    """A store that a newer stepmeter wrote is refused with what to do."""
    (run / "run.json").write_text(json.dumps({"store_version": 99, "run_id": "r", "run_name": None, "created_ns": 1}))
    with pytest.raises(StoreVersionError, match="store version 99, this stepmeter reads up to 3; upgrade"):
        open_run(run)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run_id": "r"}', '"text"', "\xff"])
def test_a_broken_identity_is_one_line(run, content):
    """A run.json that is not ours is a StoreError."""
    (run / "run.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(StoreError, match=r"run\.json: not readable") as caught:
        open_run(run)
    assert "\n" not in str(caught.value)


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    """A directory without run.json is not a run."""
    with pytest.raises(RunNotFoundError, match="is not a run"):
        open_run(tmp_path)


def test_a_run_without_data_is_refused(run):
    """A run whose data directory is gone is a StoreError, not an empty run."""
    shutil.rmtree(run / "data")
    with open_run(run) as reader, pytest.raises(StoreError, match="no directory data"):
        reader.snapshot()


def test_a_broken_segment_is_named_in_one_line(run):
    """A segment that is not Parquet is a StoreError that names it."""
    write_segment(run, STEPS, [], "host-0", 1).write_bytes(b"not parquet at all")
    with open_run(run) as reader, pytest.raises(StoreError, match=r"000000000001\.parquet") as caught:
        reader.snapshot().rows("FROM steps")
    assert "\n" not in str(caught.value)


def test_a_snapshot_does_not_move(run):
    """What is written after a snapshot is not in it, and is in the next."""
    with open_run(run) as reader:
        before = reader.snapshot()
        write_segment(run, STEPS, [step_row(1)], "host-0", 1)
        after = reader.snapshot()
        assert after.rows("SELECT step FROM steps") == [(1,)]
        assert before.rows("SELECT step FROM steps") == []
        assert after.rows("SELECT step FROM steps") == [(1,)]


def test_the_cursor_moves_with_the_data_only(run):
    """Equal cursors mean equal data; a new segment makes a new cursor."""
    with open_run(run) as reader:
        before = reader.snapshot().cursor
        assert reader.snapshot().cursor == before
        write_segment(run, STEPS, [step_row(1)], "host-0", 1)
        after = reader.snapshot().cursor
    assert len({before, after}) == 2
    assert ("steps", "host-0", "000000000001") in after


def test_a_segment_that_vanished_makes_the_snapshot_list_again(run):
    """A segment that is folded into another between listing and reading costs one retry and no error."""
    write_segment(run, STEPS, [step_row(1), step_row(2)], "host-0", 1)
    old = write_segment(run, STEPS, [step_row(3)], "host-0", 2)
    with open_run(run) as reader:
        snapshot = reader.snapshot()
        write_segment(run, STEPS, [step_row(3)], "host-0", 3)
        old.unlink()
        assert snapshot.rows("SELECT step FROM steps ORDER BY step") == [(1,), (2,), (3,)]


def test_steps_are_one_a_key_and_a_restart_adds(run):
    """Steps that came twice count once; the same step of another attempt or rank stays."""
    write_segment(run, STEPS, [step_row(1), step_row(1), step_row(1, rank=1)], "host-0", 1)
    write_segment(run, STEPS, [step_row(1), step_row(1, attempt=1)], "host-1", 1)
    with open_run(run) as reader:
        rows = reader.snapshot().rows("SELECT attempt, rank, step FROM steps ORDER BY ALL")
    assert rows == [(0, 0, 1), (0, 1, 1), (1, 0, 1)]


def test_phases_in_long_form_are_those_that_were_observed(run):
    """A phase that a step did not have has no row, rather than a zero."""
    write_segment(run, STEPS, [step_row(1)], "host-0", 1)
    with open_run(run) as reader:
        rows = reader.snapshot().rows("SELECT phase, cpu_ns, gpu_ns, regions FROM step_phases")
    assert rows == [
        ("input_wait", 2 * MS, None, 1),
        ("forward", 3 * MS, None, 1),
        ("backward", 5 * MS, None, 1),
    ]


def test_every_phase_has_a_row_in_long_form(run):
    """The long form knows every phase of the conventions."""
    write_segment(run, STEPS, [step_row(1, **{f"{phase}_count": 1 for phase in PHASES})], "host-0", 1)
    with open_run(run) as reader:
        assert reader.snapshot().rows("SELECT phase FROM step_phases") == [(phase,) for phase in PHASES]


def test_spans_hold_the_steps_too(run):
    """The view of spans is every span once, with each step as a span named step."""
    span = row(SPANS, trace_id="a" * 32, span_id="b" * 16, name="fetch", start_ns=0, end_ns=5 * MS)
    write_segment(run, SPANS, [span, span], "host-0", 1)
    write_segment(run, STEPS, [step_row(1)], "host-0", 1)
    with open_run(run) as reader:
        rows = reader.snapshot().rows("SELECT name, duration_ns, step FROM spans ORDER BY name")
    assert rows == [("fetch", 5 * MS, None), ("step", 10 * MS, 1)]


def test_points_and_resources_have_their_views(run):
    """A point's value is one column whatever its type, and a resource that two collectors saw is one row."""
    points = [row(METRIC_POINTS, metric="a", int_value=2), row(METRIC_POINTS, metric="b", double_value=0.5)]
    write_segment(run, METRIC_POINTS, points, "host-0", 1)
    for collector in ("host-0", "host-1"):
        write_segment(run, RESOURCES, [row(RESOURCES, resource_id="r", host="h")], collector, 1)
    with open_run(run) as reader:
        snapshot = reader.snapshot()
        assert snapshot.rows("SELECT metric, value FROM metrics ORDER BY metric") == [("a", 2.0), ("b", 0.5)]
        assert snapshot.rows("SELECT host FROM resources") == [("h",)]
        assert ("run_name", "demo") in snapshot.rows("SELECT key, value FROM meta")


def test_columns_keep_integers_and_mask_nulls(run):
    """A column comes as an array of its own type; nulls are masked, never made zero or floating-point."""
    write_segment(run, STEPS, [step_row(1, tokens=5), step_row(2)], "host-0", 1)
    with open_run(run) as reader:
        found = reader.snapshot().columns("SELECT step, tokens FROM steps WHERE step >= ? ORDER BY step", [1])
    assert found["step"].dtype == found["tokens"].dtype == np.int64
    assert not isinstance(found["step"], np.ma.MaskedArray)
    assert found["tokens"].mask.tolist() == [False, True]


def test_snapshot_and_catalog_have_the_same_names_and_types(run):
    """A query that works on run.duckdb works on a snapshot, with the same types."""
    describe = "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns ORDER BY ALL"
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        expected = connection.execute(describe).fetchall()
    with open_run(run) as reader:
        assert reader.snapshot().rows(describe) == expected


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT nope FROM steps", 'column "nope" not found'),
        ("FROM nowhere", "nowhere does not exist"),
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("", "found 0 statements, expected one query"),
        ("SELECT 1; SELECT 2", "found 2 statements"),
        ("DROP VIEW steps", "read-only"),
        ("COPY (SELECT 1) TO 'x.csv'", "read-only"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'x.csv'", "read-only"),
        ("EXPLAIN (FORMAT json) COPY (SELECT 1) TO 'x.csv'", "read-only"),
        ("SET enable_external_access = true", "read-only"),
        ("FROM read_csv('/etc/hostname')", "disabled by configuration"),
        ("FROM run", "run does not exist"),
    ],
)
def test_a_query_of_a_person_reads_the_run_and_nothing_else(run, sql, message):
    """A wrong query, one that writes and one that leaves the run are one line each."""
    with open_run(run) as reader, pytest.raises(StoreError, match=message) as caught:
        reader.snapshot().answer(sql)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("sql", ["SELECT 1 AS x", "DESCRIBE steps", "SUMMARIZE steps", "EXPLAIN ANALYZE FROM steps"])
def test_queries_that_only_read_are_answered(run, sql):
    """Whatever only reads is answered with columns and rows."""
    with open_run(run) as reader:
        answer = reader.snapshot().answer(sql)
    assert answer.columns
    assert answer.rows
