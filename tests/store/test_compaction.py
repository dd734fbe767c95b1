"""Tests of folding: nothing is lost, nothing is doubled, and readers go on throughout."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import duckdb
import pytest
from tests.support.rows import MS, row, step_row

from stepmeter.store import compaction
from stepmeter.store.compaction import compact
from stepmeter.store.files import Segment, cold_name, covering, current, list_segments, live_name
from stepmeter.store.reader import open_run
from stepmeter.store.schema import LOGS, RESOURCES, SPANS, STEPS, TABLES
from stepmeter.store.segments import create_run, write_segment

READ = """
import sys, time
import duckdb
catalog, seconds = sys.argv[1], float(sys.argv[2])
end_s, last, queries, failed = time.monotonic() + seconds, 0, 0, 0
with duckdb.connect(catalog, read_only=True) as connection:
    while time.monotonic() < end_s:
        try:
            count, distinct, newest = connection.execute(
                "SELECT count(*), count(DISTINCT step), coalesce(max(step), 0) FROM steps"
            ).fetchone()
        except duckdb.IOException as error:  # a file went between listing and opening: loud, rare, gone on retry
            assert "No such file" in str(error), error
            failed += 1
            continue
        assert count == distinct == newest, (count, distinct, newest)
        assert count >= last, (count, last)
        last, queries = count, queries + 1
print(queries, last, failed)
"""


@pytest.fixture
def run(tmp_path):
    """A run without rows."""
    return create_run(tmp_path, "run-1", "demo")


def write_steps(run, numbers, collector="host-0"):
    """One segment of one step for each number."""
    for number in numbers:
        write_segment(run, STEPS, [step_row(number)], collector, number)


def steps(run):
    """What our reader sees."""
    with open_run(run) as reader:
        return [step for (step,) in reader.snapshot().rows("SELECT step FROM steps ORDER BY step")]


def foreign_steps(run):
    """What any DuckDB client sees."""
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        return [step for (step,) in connection.execute("SELECT step FROM steps ORDER BY step").fetchall()]


def of_steps(run, collector="host-0"):
    """Level and numbers of the segments of steps that count."""
    found = current(list_segments(run)[STEPS])
    return [(s.level, s.first, s.last) for s in found if s.collector == collector]


def test_segments_fold_in_levels(run):
    """Four of one level become one of the next, so that a long run has few files."""
    for number in range(1, 22):
        write_steps(run, [number])
        while compact(run, "host-0", number + 1, fold=4):
            pass
    assert of_steps(run) == [(2, 1, 16), (1, 17, 20), (0, 21, 21)]
    assert steps(run) == foreign_steps(run) == list(range(1, 22))


def test_the_range_of_steps_is_in_the_name_and_the_tail_opens_few_files(run):
    """A tail leaves out folded segments whose steps are all older."""
    write_steps(run, range(1, 10))
    while compact(run, "host-0", 10, fold=4):
        pass
    folded = [s for s in current(list_segments(run)[STEPS]) if s.collector == "host-0" and s.level]
    assert [(s.low, s.high) for s in folded] == [(1, 4), (5, 8)]
    with open_run(run) as reader:
        tail = reader.snapshot().tail(6)
        assert tail.rows("SELECT step FROM steps WHERE step >= 6 ORDER BY step") == [(6,), (7,), (8,), (9,)]
        assert tail.rows("SELECT min(step) FROM raw.steps") == [(5,)]


def test_a_row_that_came_twice_is_folded_once(run):
    """Duplicates within live segments, with folded ones and of another collector end in one row."""
    write_segment(run, STEPS, [step_row(1), step_row(1)], "host-0", 1)
    write_segment(run, STEPS, [step_row(1), step_row(2)], "host-0", 2)
    compact(run, "host-0", 3, fold=2)
    write_segment(run, STEPS, [step_row(2), step_row(3)], "host-0", 3)
    write_segment(run, STEPS, [step_row(3), step_row(4)], "host-1", 1)
    assert steps(run) == foreign_steps(run) == [1, 2, 3, 4]
    write_segment(run, STEPS, [step_row(4), step_row(1)], "host-1", 2)
    compact(run, "host-1", 3, fold=2)
    write_segment(run, STEPS, [step_row(3), step_row(5)], "host-0", 4)
    compact(run, "host-0", 5, fold=2)
    assert steps(run) == foreign_steps(run) == [1, 2, 3, 4, 5]
    stored = [s for s in current(list_segments(run)[STEPS]) if s.collector != "none"]
    with duckdb.connect() as connection:
        assert connection.execute("SELECT count(*) FROM read_parquet(?)", [[s.path for s in stored]]).fetchone() == (5,)


def test_a_restart_adds_and_ids_are_keys(run):
    """The same step of another attempt or rank stays; a span is known by its ids, a log record by nothing."""
    write_segment(run, STEPS, [step_row(1), step_row(1, rank=1), step_row(1, attempt=1)], "h", 1)
    span = row(SPANS, trace_id="a" * 32, span_id="b" * 16, name="x", start_ns=0, end_ns=5 * MS)
    write_segment(run, SPANS, [span], "h", 1)
    log = row(LOGS, time_ns=1, body="said twice")
    write_segment(run, LOGS, [log], "h", 1)
    for number in (2, 3):
        write_segment(run, SPANS, [span], "h", number)
        write_segment(run, STEPS, [step_row(1, attempt=1)], "h", number)
        write_segment(run, LOGS, [log], "h", number)
        compact(run, "h", 4, fold=number)
        with open_run(run) as reader:
            snapshot = reader.snapshot()
            found = snapshot.rows("SELECT attempt, rank, step FROM steps ORDER BY ALL")
            assert found == [(0, 0, 1), (0, 1, 1), (1, 0, 1)]
            assert snapshot.rows("SELECT count(*) FROM raw.spans") == [(1,)]
            assert snapshot.rows("SELECT count(*) FROM raw.logs") == [(number,)]


def test_every_table_folds(run):
    """Whatever a table's key and order, its rows are the same before and after, also where columns are null."""
    for table in TABLES:
        for number in (1, 2):
            values = {c.name: _value(c, number) for c in table.columns}
            write_segment(run, table, [row(table, **values), row(table)], "h", number)

    def everything():
        with open_run(run) as reader:
            snapshot = reader.snapshot()
            return {t.name: sorted(map(str, snapshot.rows(f"FROM raw.{t.name}"))) for t in TABLES}

    before = everything()
    for _ in range(len(TABLES)):
        compact(run, "h", 3, fold=2)
    assert everything() == before
    assert {s.level for s in current(list_segments(run)[RESOURCES]) if s.collector == "h"} == {1}
    assert len(before["meta"]) > 2


def _value(column, number):
    kinds = {"VARCHAR": str(number), "DOUBLE": number / 2, "BOOLEAN": True, "UBIGINT[]": [number], "DOUBLE[]": [0.5]}
    return kinds.get(column.type, number)


def test_what_may_be_written_again_is_not_folded(run):
    """Segments from the number on that a crash would replay stay live."""
    write_steps(run, range(1, 5))
    compact(run, "host-0", 4, fold=4)
    assert of_steps(run) == [(0, 1, 1), (0, 2, 2), (0, 3, 3), (0, 4, 4)]
    compact(run, "host-0", 5, fold=4)
    assert of_steps(run) == [(1, 1, 4)]


def test_folded_parts_go_after_the_grace_period(run):
    """What was folded stays for readers that listed it, and then goes; a half-written file goes too."""
    write_steps(run, range(1, 5))
    live = run / "data" / "steps" / "live" / "c=host-0"
    (live / "000000000009.parquet.1.partial").write_text("half")
    os.utime(live / "000000000009.parquet.1.partial", (0, 0))
    compact(run, "host-0", 5, fold=4)
    assert len(list(live.glob("*.parquet"))) == 4
    compact(run, "host-0", 5, fold=4, grace_s=0.0)
    assert list(live.iterdir()) == []
    assert steps(run) == foreign_steps(run) == [1, 2, 3, 4]


def test_a_snapshot_outlives_a_fold(run):
    """A snapshot that was taken before a fold sees the same rows after it."""
    write_steps(run, range(1, 5))
    with open_run(run) as reader:
        snapshot = reader.snapshot()
        compact(run, "host-0", 5, fold=4, grace_s=0.0)
        compact(run, "host-0", 5, fold=4, grace_s=0.0)
        assert snapshot.rows("SELECT count(*), count(DISTINCT step) FROM steps") == [(4, 4)]


def test_one_collector_folds_at_a_time(run):
    """A collector that finds another one folding leaves it for later."""
    write_steps(run, range(1, 5))
    with compaction.try_locked(run / ".compact.lock") as free:
        assert free
        assert compact(run, "host-0", 5, fold=4) == 0
    assert compact(run, "host-0", 5, fold=4) == 1


def test_large_files_are_not_folded_further(run, monkeypatch):
    """Files beyond a size stay as they are, and later ones still fold among themselves."""
    monkeypatch.setattr(compaction, "_MAX_BYTES", 10)
    write_steps(run, range(1, 5))
    assert compact(run, "host-0", 5, fold=4) == 0


def test_another_process_reads_on_while_segments_come_fold_and_go(run):
    """A plain DuckDB client and our reader see every step once, and never fewer than before, through many folds."""
    seconds = 6.0
    command = [sys.executable, "-c", READ, str(run / "run.duckdb"), str(seconds)]
    readers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    end = threading.Event()
    covered_since_s = {}

    def write():
        number = 0
        while not end.is_set():
            number += 1
            write_steps(run, [number])
            compact(run, "host-0", number + 1, fold=3, grace_s=1.0, covered_since_s=covered_since_s)

    writer = threading.Thread(target=write)
    writer.start()
    end_s, ours = time.monotonic() + seconds, 0
    with open_run(run) as reader:
        while time.monotonic() < end_s:
            count, newest = reader.snapshot().rows("SELECT count(*), coalesce(max(step), 0) FROM steps")[0]
            assert count == newest
            ours += 1
    outputs = [reader.communicate(timeout=60) for reader in readers]
    end.set()
    writer.join()
    stdouts, stderrs = zip(*outputs, strict=True)
    assert stderrs == ("", "")
    assert all(int(last) > 0 and int(failed) < int(queries) for queries, last, failed in map(str.split, stdouts))
    assert ours > 1


@pytest.mark.parametrize("span", [None, (1, 20), (-5, 0)])
def test_names_say_what_is_inside(tmp_path, span):
    """Numbers, level and range survive the way into a name and back."""
    directory = tmp_path / "data" / "steps" / "cold" / "c=x"
    directory.mkdir(parents=True)
    (directory / cold_name(3, 12, 2, span)).touch()
    (directory / "notes.txt").touch()
    (segment,) = list_segments(tmp_path)[STEPS]
    assert (segment.collector, segment.first, segment.last, segment.level) == ("x", 3, 12, 2)
    assert (segment.low, segment.high) == (span or (None, None))


def test_only_a_higher_level_with_all_the_numbers_covers():
    """A segment is covered by a folded one of its own collector that has all its numbers, and by nothing else."""
    live = [Segment(live_name(n), "a", n, n) for n in (1, 2, 3)]
    folded = Segment("f", "a", 1, 2, 1)
    assert covering(live[0], [folded])
    assert not covering(live[2], [folded])
    assert not covering(folded, [folded])
    assert current([*live, folded, Segment("b", "b", 1, 1)]) == (folded, live[2], Segment("b", "b", 1, 1))
