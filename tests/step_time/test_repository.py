from __future__ import annotations

import re
import shutil
from dataclasses import replace

import duckdb
import pytest
from tests.support.step_time import RunBuilder, write_steps

from stepmeter.analysis.queries import query
from stepmeter.analysis.step_time.columns import from_store
from stepmeter.analysis.step_time.fresh import read_fresh
from stepmeter.analysis.step_time.pipeline import StepTimePipeline, StepTimeRequest
from stepmeter.analysis.step_time.source import PHASES
from stepmeter.analysis.step_time.tail import LAST_STEP
from stepmeter.store import segments
from stepmeter.store.reader import open_run


class CountingSnapshot:
    """A snapshot that counts the statements it is asked."""

    def __init__(self, snapshot):
        self.snapshot = snapshot
        self.statements = []

    @property
    def cursor(self):
        return self.snapshot.cursor

    def rows(self, sql, parameters=()):
        self.statements.append(sql)
        return self.snapshot.rows(sql, parameters)

    def watermark(self):
        return self.snapshot.watermark()

    def tail(self, first_step):
        self.snapshot = self.snapshot.tail(first_step)
        return self

    def since(self, cursor):
        self.snapshot = self.snapshot.since(cursor)
        return self

    def recent(self, table, names):
        return self.snapshot.recent(table, names)

    def columns(self, sql, parameters=()):
        self.statements.append(sql)
        return self.snapshot.columns(sql, parameters)


def analysis_of(path, profile="summary", window_size=None, previous=None):
    with open_run(path) as run:
        source = CountingSnapshot(run.snapshot())
        analysis = StepTimePipeline().run(StepTimeRequest(source, profile, window_size, previous))
        return analysis, source.statements


def write_more(run, steps):
    """A second segment."""
    if steps:
        rows = [RunBuilder(world_size=1)._table_row(step, "0123456789abcdef") for step in steps]
        write_steps(run, rows, 2)


def test_a_live_read_takes_one_statement(tmp_path):
    """The store's watermarks say how far each rank is; the tail is one statement."""
    run = RunBuilder().rank(0, range(1, 501)).write(tmp_path)

    analysis, statements = analysis_of(run, "live")

    assert statements == [query("step_rows")]
    assert len(analysis.snapshot.rows) == 400
    assert (analysis.window.steps[0], analysis.window.steps[-1]) == (401, 500)


@pytest.mark.parametrize("profile", ["live", "summary"])
def test_an_unchanged_run_gives_the_same_analysis_without_a_statement(tmp_path, profile):
    """The store's own position says that nothing is new; nothing is read, aligned or diagnosed again."""
    run = RunBuilder().rank(0, range(1, 51)).write(tmp_path)
    first, _ = analysis_of(run, profile)

    again, statements = analysis_of(run, profile, previous=first)

    assert again is first
    assert statements == []


def test_a_segment_that_holds_nothing_new_gives_the_same_analysis(tmp_path):
    """Steps that arrive once more, as after a lost answer, change nothing."""
    builder = RunBuilder().rank(0, range(1, 51))
    run = builder.write(tmp_path)
    first, _ = analysis_of(run, "live")
    write_more(run, builder.steps[-10:])

    again, statements = analysis_of(run, "live", previous=first)

    assert again is first
    assert statements == []


def test_a_later_live_read_takes_no_statement(tmp_path):
    """The window moves on, and as many rows are kept as before; the new segment is read as it is."""
    run = RunBuilder().rank(0, range(1, 501)).write(tmp_path)
    first, _ = analysis_of(run, "live")
    write_more(run, RunBuilder().rank(0, range(1, 511)).steps[500:])

    again, statements = analysis_of(run, "live", previous=first)

    assert statements == []
    assert (again.window.steps[0], again.window.steps[-1], len(again.snapshot.rows)) == (411, 510, 400)


def fresh_and_asked(run, cursor, attempt=0, first=3):
    with open_run(run) as reader:
        newer = reader.snapshot().since(cursor)
        fresh = read_fresh(newer, attempt, first)
        return fresh and from_store(fresh), from_store(newer.columns(query("step_rows"), (attempt, first, LAST_STEP)))


def test_new_segments_read_as_they_are_give_what_the_statement_gives(tmp_path):
    """Ranks, warm-up, absent phases, backward's waits, attempts and the first step wanted come out the same."""
    run = RunBuilder().rank(0, range(1, 3)).write(tmp_path)
    with open_run(run) as reader:
        cursor = reader.snapshot().cursor
    builder = RunBuilder(world_size=2).rank(1, range(1, 9)).rank(0, range(1, 9)).waits(1, {5: 20.0, 6: 0.0})
    rows = [builder._table_row(step, "0123456789abcdef") for step in builder.steps]
    write_steps(run, rows[:9], 2)
    write_steps(run, rows[9:], 3)

    fresh, asked = fresh_and_asked(run, cursor)

    assert len(fresh) == 12
    assert fresh.same_as(asked)
    assert fresh_and_asked(run, cursor, attempt=1)[0].same_as(fresh_and_asked(run, cursor, attempt=1)[1])


def test_a_step_that_came_twice_is_left_to_the_statement(tmp_path):
    """Which of two rows of one step counts is for the store's view to say; so it is where there is no new segment."""
    run = RunBuilder().rank(0, range(1, 3)).write(tmp_path)
    with open_run(run) as reader:
        cursor = reader.snapshot().cursor
        assert read_fresh(reader.snapshot().since(cursor), 0, 1) is None
    write_more(run, [*RunBuilder().rank(0, range(1, 9)).steps[2:], *RunBuilder().rank(0, range(1, 9)).steps[4:5]])

    fresh, asked = fresh_and_asked(run, cursor)

    assert fresh is None
    assert asked.step.tolist() == [3, 4, 5, 6, 7, 8]


def test_a_segment_that_is_gone_is_left_to_the_statement(tmp_path):
    """A segment that was folded since the listing is found by listing once more."""
    run = RunBuilder().rank(0, range(1, 3)).write(tmp_path)
    with open_run(run) as reader:
        cursor = reader.snapshot().cursor
        write_more(run, RunBuilder().rank(0, range(1, 9)).steps[2:])
        newer = reader.snapshot().since(cursor)
        for file in (run / "data" / "steps" / "live").rglob("*2.parquet"):
            file.unlink()

        assert read_fresh(newer, 0, 1) is None


def test_a_later_live_read_takes_new_segments_only(tmp_path):
    """What came since another snapshot's cursor is all there, and nothing else."""
    run = RunBuilder().rank(0, range(1, 51)).write(tmp_path)
    with open_run(run) as reader:
        cursor = reader.snapshot().cursor
        write_more(run, RunBuilder().rank(0, range(1, 54)).steps[50:])

        rows = reader.snapshot().since(cursor).rows("SELECT step FROM steps ORDER BY step")

    assert rows == [(51,), (52,), (53,)]


def test_a_rank_that_fell_back_is_read_from_further_back(tmp_path):
    """A new rank starts at step 1 while the other is at 500: the window is where both have been."""
    run = RunBuilder().rank(0, range(1, 501)).write(tmp_path)
    first, _ = analysis_of(run, "live")
    recent_ns = first.snapshot.cursor.last_end_ns
    write_more(run, [replace(step, end_ns=recent_ns) for step in RunBuilder().rank(1, range(1, 51)).steps])

    again, _ = analysis_of(run, "live", previous=first)

    assert (again.window.ranks, again.window.steps[-1]) == ((0, 1), 50)


def test_a_later_live_read_follows_a_restart(tmp_path):
    """The new attempt's first steps replace the window, although their numbers are lower."""
    run = RunBuilder().rank(0, range(1, 501)).write(tmp_path)
    first, _ = analysis_of(run, "live")
    write_more(run, RunBuilder().rank(0, range(1, 25), attempt=1).steps)

    again, _ = analysis_of(run, "live", previous=first)

    assert (again.snapshot.cursor.attempt, again.snapshot.attempts, again.window.steps[-1]) == (1, 2, 24)


def test_a_run_without_watermarks_is_read_live_too(tmp_path):
    """Such as one that an older version wrote: the steps themselves are counted."""
    run = RunBuilder().rank(0, range(1, 501)).write(tmp_path)
    shutil.rmtree(run / "watermark")

    analysis, statements = analysis_of(run, "live")

    assert statements == [query("step_rows")]
    assert (analysis.window.steps[0], analysis.window.steps[-1]) == (401, 500)


def test_a_later_live_read_still_knows_the_rank_that_fell_silent(tmp_path):
    """Rank 1 stopped at step 20; its last step is long out of the tail and still named."""
    steps = RunBuilder().rank(0, range(1, 1011), traced=995.0).rank(1, range(1, 21), traced=995.0)
    late = [step for step in steps.steps if step.step > 1000]
    steps.steps = [step for step in steps.steps if step.step <= 1000]
    run = steps.write(tmp_path)
    first, _ = analysis_of(run, "live")
    write_more(run, late)

    again, _ = analysis_of(run, "live", previous=first)

    assert again.window.steps[-1] == 1010
    assert [(item.global_rank, item.last_step) for item in again.window.coverage.silent] == [(1, 20)]


@pytest.mark.parametrize("changed", [{"training_strategy": "fsdp"}, {"global_ranks": (0, 1, 2)}])
def test_another_strategy_or_universe_ends_the_reuse(tmp_path, changed):
    """Rows that are the same mean something else then."""
    builder = RunBuilder().rank(0, range(1, 51))
    run = builder.write(tmp_path)
    first, _ = analysis_of(run, "live")
    before = replace(first, snapshot=replace(first.snapshot, **changed))
    write_more(run, builder.steps[-1:])

    again, _ = analysis_of(run, "live", previous=before)

    assert again is not before
    assert again.window.training_strategy == "ddp"


@pytest.mark.parametrize("what", ["steps", "rank", "window"])
def test_what_changed_is_analyzed_anew(tmp_path, what):
    """A new step, a new rank, or another window size each end the reuse."""
    builder = RunBuilder().rank(0, range(1, 51))
    run = builder.write(tmp_path)
    first, _ = analysis_of(run, "live", 100)
    all_steps = RunBuilder().rank(0, range(1, 52)).rank(1, range(1, 51)).steps
    write_more(run, {"steps": all_steps[50:51], "rank": all_steps[-1:], "window": []}[what])

    again, _ = analysis_of(run, "live", 50 if what == "window" else 100, first)

    assert again is not first


def test_the_latest_attempt_is_read(tmp_path):
    """A restart begins at step 1 again; the steps before it are another attempt's."""
    builder = RunBuilder().rank(0, range(1, 51), input_wait=50.0).rank(0, range(1, 25), attempt=1)

    analysis, _ = analysis_of(builder.write(tmp_path))

    assert (analysis.snapshot.cursor.attempt, analysis.snapshot.attempts, len(analysis.window.steps)) == (1, 2, 24)
    assert analysis.diagnosis.primary.kind == "BALANCED"


def test_identities_and_strategy_come_with_the_steps(tmp_path):
    """Host, node, device and strategy are those that the steps carry."""
    analysis, _ = analysis_of(RunBuilder(strategy="fsdp", gpu=True).rank(3, range(1, 5)).write(tmp_path))

    identity = analysis.snapshot.identities[3]
    assert (identity.host, identity.node_rank, identity.local_rank, identity.hw_id) == ("worker-0", 0, 3, "GPU-3")
    assert analysis.window.training_strategy == "fsdp"


def test_a_silent_rank_does_not_hold_the_tail_back(tmp_path):
    """Rank 1 stopped at step 20 of 1,000; the live window is the last 100 steps of the other."""
    builder = RunBuilder().rank(0, range(1, 1001), traced=995.0).rank(1, range(1, 21), traced=995.0)

    analysis, _ = analysis_of(builder.write(tmp_path), "live")

    assert (analysis.window.steps[0], analysis.window.steps[-1]) == (901, 1000)
    assert analysis.diagnosis.primary.kind == "RANK_SILENT"


def test_drops_are_read_for_the_summary(tmp_path):
    """They are counters, of which the largest point of each process counts."""
    analysis, _ = analysis_of(RunBuilder(dropped={"steps_queue_full": 3}).rank(0, range(1, 5)).write(tmp_path))

    assert analysis.window.coverage.dropped == {"steps_queue_full": 3}


def test_a_run_without_steps_is_read(tmp_path):
    """The zero-row segments are enough."""
    analysis, _ = analysis_of(RunBuilder().write(tmp_path))

    assert (analysis.snapshot.global_ranks, analysis.diagnosis.primary.kind) == ((), "NO_DATA")


QUERIES = {
    "step_progress": 0,
    "step_rows": 3,
    "dropped": 0,
    "local_world_size": 1,
    "step_memory": 3,
    "gpu_limits": 0,
    "system_readings": 4,
    "gpu_readings": 4,
    "process_readings": 4,
}
"""The queries of time, memory, hosts and processes, with the number of their parameters."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    run = RunBuilder().write(tmp_path_factory.mktemp("runs"))
    segments.complete_run(run)
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        yield connection


@pytest.mark.parametrize("name", QUERIES)
def test_every_column_of_a_query_is_documented(catalog, name):
    """Each column that a query gives has a line in its header."""
    text = query(name)
    documented = {line.split()[1] for line in text.splitlines() if line.startswith("--   ")}
    columns = [column for column, *_ in catalog.execute(f"DESCRIBE {text}", [0] * QUERIES[name]).fetchall()]

    general = [re.sub(rf"^({'|'.join(PHASES)})_", "<phase>_", column) for column in columns]
    assert set(general) <= documented
