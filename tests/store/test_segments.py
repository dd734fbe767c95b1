"""Tests of how runs and segments come to be."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow.parquet as pq
import pytest
from tests.support.rows import row, step_row

from stepmeter.store.catalog import PUBLIC_VIEWS
from stepmeter.store.reader import open_run
from stepmeter.store.schema import HISTOGRAM_POINTS, STEPS, TABLES
from stepmeter.store.segments import create_run, safe_name, write_segment

READ_FROM_ANOTHER_PROCESS = (
    "import duckdb, sys; c = duckdb.connect(sys.argv[1], read_only=True); "
    "print(c.execute('SELECT count(*) FROM steps').fetchone()[0])"
)


def test_a_run_is_named_by_its_name_and_else_by_its_id(tmp_path):
    """A run's directory has its name, or its id when it has no name."""
    assert create_run(tmp_path, "id-1", "demo") == tmp_path / "demo"
    assert create_run(tmp_path, "id-2", None) == tmp_path / "id-2"


def test_the_same_id_finds_its_run_and_another_id_gets_a_number(tmp_path):
    """A name that another run owns gets -2, -3 …, and an id always finds its own run."""
    runs = [create_run(tmp_path, run_id, "demo").name for run_id in ("a", "b", "c", "b", "a")]
    assert runs == ["demo", "demo-2", "demo-3", "demo-2", "demo"]
    assert create_run(tmp_path, "b", None).name == "demo-2"


@pytest.mark.parametrize("name", ["../up", ".hidden", "a/b", "", "x" * 129, "a b", "é", "a\n", "\udc80"])
def test_a_name_that_is_no_safe_directory_becomes_a_hash(tmp_path, name):
    """A name from the wire never leads out of the directory of runs."""
    safe = safe_name(name)
    assert safe.startswith("run-")
    assert len(safe) == 20


def test_run_json_says_what_the_run_is(tmp_path):
    """The identity of a run is in its run.json."""
    found = json.loads((create_run(tmp_path, "id-1", "demo") / "run.json").read_text())
    assert found.pop("created_ns") > 1_700_000_000_000_000_000
    assert found == {"store_version": 3, "run_id": "id-1", "run_name": "demo"}


def test_two_collectors_that_make_one_run_at_once_make_one(tmp_path):
    """Eight makers of the same run at the same time get the same whole directory."""
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: create_run(tmp_path, "id-1", "demo"), range(8)))
    assert made == {tmp_path / "demo"}
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["demo"]


def test_a_run_without_its_catalog_gets_one(tmp_path):
    """A collector that died between the directory and its run.duckdb is made good by the next one."""
    run = create_run(tmp_path, "id-1", "demo")
    (run / "run.duckdb").unlink()
    create_run(tmp_path, "id-1", "demo")
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM steps").fetchone() == (0,)


def test_every_view_and_column_says_what_it_is(tmp_path):
    """Every view and column of run.duckdb has a comment."""
    run = create_run(tmp_path, "id-1", "demo")
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        views = connection.execute("SELECT schema_name, view_name, comment FROM duckdb_views() WHERE NOT internal")
        found = views.fetchall()
        silent = connection.execute(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL"
        ).fetchall()
        tags = connection.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'run'").fetchone()
    assert {name for schema, name, _ in found if schema == "main"} == set(PUBLIC_VIEWS)
    assert {name for schema, name, _ in found if schema == "raw"} == {table.name for table in TABLES}
    assert all(comment for _, _, comment in found)
    assert silent == []
    assert "v1.0.0" in str(tags)


def test_the_catalog_shows_a_segment_as_soon_as_it_is_there(tmp_path):
    """A reader that holds run.duckdb open sees the next segment without opening it again."""
    run = create_run(tmp_path, "run-1", None)
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        for number in range(3):
            write_segment(run, STEPS, [step_row(number)], "host-0", number + 1)
            assert connection.execute("SELECT count(*) FROM steps").fetchone() == (number + 1,)


def test_another_process_reads_run_duckdb_while_it_is_open_here(tmp_path):
    """Any DuckDB client may open run.duckdb read-only, under any path."""
    run = create_run(tmp_path / "it's [a] *", "run-1", None)
    write_segment(run, STEPS, [step_row(1), step_row(2)], "host-0", 1)
    with duckdb.connect(str(run / "run.duckdb"), read_only=True):
        command = [sys.executable, "-c", READ_FROM_ANOTHER_PROCESS, str(run / "run.duckdb")]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "2\n"


def test_the_catalog_can_be_attached_under_another_name(tmp_path):
    """The views do not depend on the name under which run.duckdb is attached."""
    run = create_run(tmp_path, "run-1", None)
    write_segment(run, STEPS, [step_row(1)], "host-0", 1)
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{run / 'run.duckdb'}' AS other (READ_ONLY)")
        assert connection.execute("SELECT count(*) FROM other.step_phases").fetchone() == (3,)


def test_the_same_number_overwrites(tmp_path):
    """A segment that is written again, as a replay does, adds nothing."""
    run = create_run(tmp_path, "run-1", None)
    for _ in range(2):
        write_segment(run, STEPS, [step_row(1), step_row(2)], "host-0", 7)
    with open_run(run) as reader:
        assert reader.snapshot().rows("SELECT count(*) FROM raw.steps") == [(2,)]


def test_a_segment_that_fails_leaves_nothing(tmp_path):
    """Rows that do not fit their columns leave no file behind."""
    run = create_run(tmp_path, "run-1", None)
    with pytest.raises(OverflowError):
        write_segment(run, STEPS, [step_row(1, start_ns=2**63)], "host-0", 1)
    assert [path for path in run.rglob("*") if "host-0" in str(path) and path.is_file()] == []


def test_segments_have_the_declared_types(tmp_path):
    """A column of counts is a list of unsigned integers, in a segment as in the schema."""
    run = create_run(tmp_path, "run-1", None)
    points = [row(HISTOGRAM_POINTS, metric="m", count=3, bucket_counts=[1, 2], explicit_bounds=[0.5])]
    segment = write_segment(run, HISTOGRAM_POINTS, points, "host-0", 1)
    assert str(pq.read_schema(segment).field("bucket_counts").type) == "list<element: uint64>"
    with open_run(run) as reader:
        assert reader.snapshot().rows("SELECT bucket_counts, explicit_bounds FROM histograms") == [([1, 2], [0.5])]
