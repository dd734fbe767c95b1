"""Tests of sealing: one portable native file, with everything that was in the run and nothing else."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import threading

import duckdb
import pytest
from tests.support.rows import MS, row, step_row

from stepmeter.errors import StoreError, StoreVersionError
from stepmeter.store.compaction import compact
from stepmeter.store.reader import find_run, open_run
from stepmeter.store.schema import LOGS, METRIC_POINTS, RESOURCES, ROWS, SPANS, STEPS
from stepmeter.store.seal import seal
from stepmeter.store.segments import create_run, write_segment

ATTRIBUTES = '{"a":1,"b":1.5,"c":"text","d":[1,"x",null],"e":{"f":true},"g":9007199254740993,"h":"NaN"}'


@pytest.fixture
def run(tmp_path):
    """A run with a row of every kind, some of it folded."""
    run = create_run(tmp_path, "run-1", "demo")
    for number in (1, 2, 3):
        write_segment(run, STEPS, [step_row(number), step_row(number, rank=1)], "h", number)
    compact(run, "h", 3, fold=2)
    write_segment(
        run,
        SPANS,
        [
            row(
                SPANS,
                trace_id="a" * 32,
                span_id="b" * 16,
                name="x",
                kind="Internal",
                start_ns=0,
                end_ns=5 * MS,
                status_code="Unset",
                attributes=ATTRIBUTES,
            )
        ],
        "h",
        1,
    )
    write_segment(run, SPANS, [row(SPANS, trace_id="a" * 32, span_id="c" * 16, name="y", start_ns=1, end_ns=2)], "h", 2)
    write_segment(run, METRIC_POINTS, [row(METRIC_POINTS, metric="m", kind="gauge", int_value=2, time_ns=1)], "h", 1)
    write_segment(run, RESOURCES, [row(RESOURCES, resource_id="r", host="h")], "h", 1)
    write_segment(run, LOGS, [row(LOGS, time_ns=1, body="hello")], "h", 1)
    write_segment(run, ROWS, [row(ROWS, attempt=0, step=1, time_ns=1, values='{"loss":0.5}')], "h", 1)
    return run


def everything(run):
    """All rows of all views, JSON as data."""
    with open_run(run) as reader:
        snapshot = reader.snapshot()
        names = snapshot.rows(
            "SELECT table_schema || '.' || table_name FROM information_schema.tables "
            "WHERE table_schema IN ('raw', 'main') ORDER BY ALL"
        )
        found = {name: snapshot.rows(f"FROM {name}") for (name,) in names}
    return {
        name: sorted(str([plain(v) for v in row]) for row in rows if "sealed_ns" not in row)
        for name, rows in found.items()
    }


def plain(value):
    """JSON text as data, so that the order of keys does not matter."""
    return json.loads(value) if isinstance(value, str) and value.startswith("{") else value


def test_a_sealed_run_has_the_same_rows_views_and_types(run):
    """Every view of a sealed run has the rows and types that it had before, and the segments are gone."""
    describe = (
        "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns "
        "WHERE table_schema IN ('raw', 'main') ORDER BY ALL"
    )
    before = everything(run)
    with open_run(run) as reader:
        types = reader.snapshot().rows(describe)
        cursor = reader.snapshot().cursor
    assert seal(run)
    assert everything(run) == before
    with open_run(run) as reader:
        assert reader.snapshot().rows(describe) == types
        assert reader.snapshot().cursor != cursor
        assert [(m.rank, m.recorded_steps, m.last_step) for m in reader.snapshot().watermark()] == [
            (0, 3, 3),
            (1, 3, 3),
        ]
    assert sorted(path.name for path in run.iterdir() if not path.name.startswith(".")) == ["run.duckdb", "run.json"]
    assert json.loads((run / "run.json").read_text())["sealed_ns"] > 0


def test_a_sealed_run_says_what_each_column_is(run):
    """Tables, views and columns keep their comments."""
    seal(run)
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        silent = connection.execute(
            "SELECT schema_name, table_name, column_name FROM duckdb_columns() WHERE NOT internal AND comment IS NULL"
        )
        assert silent.fetchall() == []
        tags = connection.execute("SELECT tags FROM duckdb_databases() WHERE database_name = 'run'").fetchone()
        kind = connection.execute("SELECT typeof(attributes) FROM stored.spans LIMIT 1").fetchone()
        loss = connection.execute('SELECT "values".loss::DOUBLE FROM stored.rows').fetchone()
    assert "v1.5.0" in str(tags)
    assert (kind, loss) == (("VARIANT",), (0.5,))


def test_a_sealed_run_can_be_moved(run, tmp_path):
    """In another directory, and under another name, a sealed run still opens with any DuckDB client."""
    seal(run)
    moved = tmp_path / "elsewhere" / "it's moved"
    moved.parent.mkdir()
    shutil.move(run, moved)
    with duckdb.connect(str(moved / "run.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM steps").fetchone() == (6,)
    shutil.copy(moved / "run.duckdb", tmp_path / "copy.duckdb")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{tmp_path / 'copy.duckdb'}' AS other (READ_ONLY)")
        assert connection.execute("SELECT count(*) FROM other.spans").fetchone() == (8,)
    assert find_run("run-1", tmp_path / "elsewhere") == moved


def test_sealing_again_does_nothing(run):
    """A run is sealed once; an interrupted removal of its segments is made good."""
    assert seal(run)
    (run / "data").mkdir()
    assert not seal(run)
    assert not (run / "data").exists()


def test_a_run_that_is_written_is_not_sealed(run):
    """While a collector holds a run, sealing it is refused with what to do, and nothing changes."""
    with (run / ".writers").open("a") as writer:
        fcntl.flock(writer, fcntl.LOCK_SH)
        with pytest.raises(StoreError, match="a collector writes to it"):
            seal(run)
    assert (run / "data").is_dir()
    assert seal(run)


def test_a_newer_run_is_not_sealed(run):
    """A run of a newer stepmeter is left alone."""
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "store_version": 99}))
    with pytest.raises(StoreVersionError):
        seal(run)


def test_readers_go_on_while_a_run_is_sealed(run):
    """A reader and a snapshot that were opened before see the same rows after, also in the middle of it."""
    stop, counts = threading.Event(), set()

    def read():
        with open_run(run) as reader:
            while not stop.is_set():
                counts.update(reader.snapshot().rows("SELECT count(*), count(DISTINCT (rank, step)) FROM steps"))

    reading = threading.Thread(target=read)
    reading.start()
    with open_run(run) as reader:
        snapshot = reader.snapshot()
        seal(run)
        assert snapshot.rows("SELECT count(*) FROM steps") == [(6,)]
        assert reader.snapshot().tail(3).rows("SELECT count(*) FROM steps WHERE step >= 3") == [(2,)]
    stop.set()
    reading.join()
    assert counts == {(6, 6)}


def test_a_query_of_a_person_still_reads_the_run_and_nothing_else(run):
    """A sealed run is read-only, and its queries do not leave it."""
    seal(run)
    with open_run(run) as reader:
        for sql in ("DROP VIEW steps", "DELETE FROM stored.steps", "FROM read_csv('/etc/hostname')"):
            with pytest.raises(StoreError):
                reader.snapshot().answer(sql)
        assert reader.snapshot().answer("SELECT attributes ->> '$.e.f' FROM spans WHERE name = 'x'").rows == [("true",)]


def test_any_process_opens_a_sealed_file(run):
    """A sealed file opens in a process that knows nothing of stepmeter."""
    seal(run)
    code = "import duckdb, sys; print(duckdb.connect(sys.argv[1], read_only=True).sql('SELECT count(*) FROM steps'))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(run / "run.duckdb")], capture_output=True, text=True, check=True
    )
    assert " 6 " in done.stdout


def test_a_run_that_is_not_whole_is_not_sealed(run):
    """A broken segment, or none, is one line; what was there stays."""
    segments = {file: file.read_bytes() for file in (run / "data" / "spans").rglob("*.parquet")}
    for segment in segments:
        segment.write_bytes(b"broken")
    with pytest.raises(StoreError, match="nothing was changed"):
        seal(run)
    for segment, content in segments.items():
        segment.write_bytes(content)
    (run / "data").rename(run / "elsewhere")
    with pytest.raises(StoreError, match="no directory data in it"):
        seal(run)
    (run / "elsewhere").rename(run / "data")

    assert seal(run)


@pytest.mark.parametrize("kept_bytes", [None, 0, 5000])
def test_a_sealed_run_that_lost_its_file_is_one_line(run, kept_bytes):
    """Missing or cut short, the file is named, and what to do."""
    seal(run)
    file = run / "run.duckdb"
    content = file.read_bytes()
    file.unlink()
    if kept_bytes is not None:
        file.write_bytes(content[:kept_bytes])

    with pytest.raises(StoreError, match=r"run\.duckdb.*; copy the whole run again, or collect it again") as caught:
        open_run(run)
    assert "\n" not in str(caught.value)
