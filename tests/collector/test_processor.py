"""Tests of the processor: durable before acknowledged, once however often sent, and whole after a crash."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from tests.support.otlp import run_resource, span, step_span, traces, wait_until

from stepmeter.collector import duckdb_processor, folder, journal, seen_file
from stepmeter.collector.decode import RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import Health
from stepmeter.collector.journal import JournalFile, Record, journal_files
from stepmeter.collector.otlp import TRACES, Encoding, MalformedError
from stepmeter.collector.seen import Receipt
from stepmeter.collector.seen_file import SeenFile
from stepmeter.collector.slot import take_slot
from stepmeter.collector.verdicts import RefusedError, UnavailableError
from stepmeter.store.compaction import compact
from stepmeter.store.durable import try_locked
from stepmeter.store.reader import find_run, open_run
from stepmeter.store.segments import create_run

RUN = RunKey("run-1", "demo")
NEVER_S = 3600.0


def record(request):
    """A request as it is accepted."""
    return Record(TRACES, Encoding.PROTOBUF, request.SerializeToString())


def rows(directory, sql, run="run-1"):
    """What a run holds."""
    with open_run(find_run(run, directory)) as reader:
        return reader.snapshot().rows(sql)


@pytest.fixture
def start(tmp_path):
    """Start processors on one directory; they are closed at the end."""
    started = []

    def make(default_run=RUN, flush_interval_s=NEVER_S):
        started.append(DuckdbProcessor(tmp_path, default_run, Health(), flush_interval_s))
        return started[-1]

    yield make
    for processor in started:
        if processor._flusher.is_alive():
            processor.close()


def test_what_was_accepted_is_in_the_store_after_the_end(start, tmp_path):
    """Closing writes every acknowledged request, and leaves one empty journal file that knows the number."""
    processor = start()
    for step in (1, 2, 3):
        assert processor.accept(record(traces(step_span(step)))).rejected == 0
    processor.close()
    assert rows(tmp_path, "SELECT step FROM steps ORDER BY step") == [(1,), (2,), (3,)]
    ((number, _),) = journal_files(processor._slot.journal_dir)
    assert number == 2
    assert processor._health.counts()["requests_accepted"] == 3


def test_segments_come_without_an_end(start, tmp_path):
    """An interval after a request was acknowledged its rows can be read."""
    processor = start(flush_interval_s=0.05)
    processor.accept(record(traces(step_span(1))))
    wait_until(lambda: processor._health.counts().get("rows_written"))
    assert rows(tmp_path, "SELECT step FROM steps") == [(1,)]


def test_the_same_request_is_written_once(start, tmp_path):
    """A request that is sent again is acknowledged and adds nothing, also when both are under way at once."""
    processor = start()
    body = record(traces(step_span(1), span("forward")))
    with ThreadPoolExecutor(8) as pool:
        receipts = list(pool.map(lambda _: processor.accept(body), range(32)))
    processor.close()
    assert {receipt.rejected for receipt in receipts} == {0}
    assert rows(tmp_path, "SELECT count(*) FROM raw.steps") == [(1,)]
    assert rows(tmp_path, "SELECT count(*) FROM raw.spans") == [(1,)]
    assert processor._health.counts()["requests_deduplicated"] == 31


def test_the_next_process_finishes_what_a_dead_one_left(start, tmp_path):
    """A journal that was left over becomes segments; its requests are not written again when they are sent again."""
    slot = take_slot(tmp_path)
    left = JournalFile(slot.journal_dir, 5, RUN)
    bodies = [record(traces(step_span(step))) for step in (1, 2)]
    left.append([*bodies, bodies[0]])
    left.close()
    slot.release()
    processor = start(default_run=RunKey("another"))
    for body in bodies:
        processor.accept(body)
    processor.accept(record(traces(step_span(3))))
    processor.close()
    assert rows(tmp_path, "SELECT step FROM raw.steps ORDER BY step") == [(1,), (2,), (3,)]
    assert processor._health.counts()["requests_deduplicated"] == 2
    assert [number for number, _ in journal_files(slot.journal_dir)] == [7]


def test_a_replay_goes_to_the_run_that_it_was_sent_for(start, tmp_path):
    """Telemetry that names no run belongs to the run its collector was started for, even if the next serves another."""
    slot = take_slot(tmp_path)
    left = JournalFile(slot.journal_dir, 1, RunKey("first"))
    left.append([record(traces(span("chat"), resource=run_resource(None)))])
    left.close()
    slot.release()
    start(default_run=RunKey("second")).close()
    assert rows(tmp_path, "SELECT name, run_id FROM spans", "first") == [("chat", "first")]
    assert rows(tmp_path, "SELECT name FROM spans", "second") == []


def test_a_replay_after_half_of_its_segments_adds_nothing(start, tmp_path):
    """A process that died after its segments and before its journal went leaves no duplicates behind."""
    processor = start()
    processor.accept(record(traces(step_span(1), span("forward"))))
    (_, path), *_ = journal_files(processor._slot.journal_dir)
    kept = path.read_bytes()
    processor.close()
    path.write_bytes(kept)
    start().close()
    assert rows(tmp_path, "SELECT count(*) FROM raw.steps") == [(1,)]
    assert rows(tmp_path, "SELECT count(*) FROM raw.spans") == [(1,)]


def test_runs_are_kept_apart_by_their_id(start, tmp_path):
    """Each run has its directory; what names no run goes to the one that the collector was started for."""
    processor = start()
    named = {"stepmeter.run.name": "same"}
    for run_id in ("a", "b"):
        processor.accept(record(traces(step_span(1), resource=run_resource(run_id, **named))))
    processor.accept(record(traces(span("chat"), resource=run_resource(None))))
    processor.close()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["demo", "same", "same-2"]
    for run_id in ("a", "b"):
        assert rows(tmp_path, "SELECT run_id, step FROM steps", run_id) == [(run_id, 1)]
    assert rows(tmp_path, "SELECT name FROM spans") == [("chat",)]


def test_an_id_with_and_without_its_name_is_one_run(start, tmp_path):
    """Processes of one run that do not all know its name still write one directory, and lose nothing."""
    processor = start()
    processor.accept(record(traces(step_span(1), resource=run_resource("a"))))
    processor.accept(record(traces(step_span(2), resource=run_resource("a", **{"stepmeter.run.name": "named"}))))
    processor.close()
    assert rows(tmp_path, "SELECT count(*) FROM steps", "a") == [(2,)]


def test_names_from_the_wire_stay_in_the_directory(start, tmp_path):
    """A run that calls itself ../../x gets a directory with a safe name inside the directory of runs."""
    processor = start()
    processor.accept(
        record(traces(step_span(1), resource=run_resource("../../evil", **{"stepmeter.run.name": "/etc"})))
    )
    processor.close()
    (made,) = (path for path in tmp_path.iterdir() if path.name.startswith("run-"))
    assert rows(tmp_path, "SELECT run_id FROM steps", str(made)) == [("../../evil",)]


def test_a_resource_is_told_once(start, tmp_path):
    """A resource that comes with every request is one row for each collector, as is the collector itself."""
    processor = start(flush_interval_s=0.05)
    for step in (1, 2, 3):
        processor.accept(record(traces(step_span(step))))
        wait_until(lambda: not processor._open and not processor._backlog)
    processor.close()
    assert rows(tmp_path, "SELECT count(*) FROM raw.resources") == [(1,)]
    assert rows(tmp_path, "SELECT count(*) FROM raw.meta WHERE key = 'collector'") == [(1,)]


def test_what_is_malformed_leaves_nothing(start, tmp_path):
    """A request that can't be decoded is refused and is not in the journal."""
    processor = start()
    with pytest.raises(MalformedError):
        processor.accept(Record(TRACES, Encoding.PROTOBUF, b"\xff\xff"))
    ((_, path),) = journal_files(processor._slot.journal_dir)
    assert journal.read_journal(path)[1] == []


def test_a_full_disk_asks_senders_to_come_again(start, tmp_path, monkeypatch):
    """While the journal can't be written a request is refused; it is taken, once, when the disk has room again."""
    processor = start()
    body = record(traces(step_span(1)))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", full)
        with pytest.raises(UnavailableError, match="No space left"):
            processor.accept(body)
    processor.accept(body)
    processor.close()
    assert rows(tmp_path, "SELECT count(*) FROM raw.steps") == [(1,)]


def test_segments_that_fail_are_tried_again_in_order(start, tmp_path):
    """While a run can't be written its requests wait in the journal, and readiness says why."""
    processor = start(flush_interval_s=0.05)
    wait_until((tmp_path / "demo" / "run.duckdb").exists)
    in_the_way = tmp_path / "demo" / "data" / "steps"
    shutil.rmtree(in_the_way)
    in_the_way.write_text("no directory")
    processor.accept(record(traces(step_span(1))))
    wait_until(lambda: processor.trouble)
    processor.accept(record(traces(step_span(2))))
    assert "safe in the journal" in processor.trouble
    in_the_way.unlink()
    wait_until(lambda: processor.trouble is None)
    processor.close()
    assert rows(tmp_path, "SELECT step FROM steps ORDER BY step") == [(1,), (2,)]


def test_a_journal_that_nobody_can_read_is_kept_aside(start, tmp_path):
    """A left-over journal of an unknown kind stops nothing and is not thrown away."""
    slot = take_slot(tmp_path)
    path = slot.journal_dir / "000000000001.journal"
    body = b"from the future"
    path.write_bytes(journal._head(99, 0, body, 1) + body)
    slot.release()
    processor = start()
    processor.accept(record(traces(step_span(1))))
    processor.close()
    assert path.with_suffix(".broken").exists()
    assert rows(tmp_path, "SELECT step FROM steps") == [(1,)]


def test_segments_give_way_to_senders_for_a_while(start, monkeypatch):
    """Durable requests become rows as soon as no sender waits for its answer, and soon in any case."""
    processor, waiting = start(), [record(traces(step_span(1))), record(traces(step_span(2)))]
    processor._accepting = 1
    monkeypatch.setattr(duckdb_processor, "_PATIENCE_S", 0.2)
    begun_s = time.monotonic()
    assert list(processor._at_leisure(waiting)) == waiting
    assert time.monotonic() - begun_s >= 0.2

    monkeypatch.setattr(duckdb_processor, "_PATIENCE_S", 3600.0)
    answered = threading.Timer(0.2, setattr, (processor, "_accepting", 0))
    answered.start()
    assert list(processor._at_leisure(waiting)) == waiting
    assert processor._accepting == 0


def test_too_much_that_waits_is_refused(start, monkeypatch):
    """When segments fall behind, senders are asked to come again rather than memory filled."""
    monkeypatch.setattr(duckdb_processor, "_WAITING_BYTES", 10)
    monkeypatch.setattr(duckdb_processor, "_SEGMENT_BYTES", 1 << 30)
    processor = start()
    processor.accept(record(traces(step_span(1))))
    with pytest.raises(UnavailableError, match="wait to be written"):
        processor.accept(record(traces(step_span(2))))


def test_an_end_leaves_nobody_waiting(start):
    """A request that comes during the end is taken or refused, never left hanging."""
    processor = start()
    outcomes = []

    def send(step):
        try:
            processor.accept(record(traces(step_span(step))))
            outcomes.append("taken")
        except UnavailableError:
            outcomes.append("refused")

    threads = [threading.Thread(target=send, args=(step,)) for step in range(1, 30)]
    for thread in threads[:15]:
        thread.start()
    closing = threading.Thread(target=processor.close)
    closing.start()
    for thread in threads[15:]:
        thread.start()
    for thread in (*threads, closing):
        thread.join(20)
    assert len(outcomes) == 29


def test_a_request_is_known_again_over_restarts(start, tmp_path):
    """A request whose journal is long gone is acknowledged by the next process and not written again."""
    body, bad = record(traces(step_span(1))), span("bad")
    bad.span_id = b""
    partly = record(traces(bad, step_span(2)))
    first = start()
    first.accept(body)
    assert first.accept(partly).rejected == 1
    first.close()
    second = start()
    second.accept(body)
    assert second.accept(partly).rejected == 1
    second.close()
    assert second._health.counts()["requests_deduplicated"] == 2
    assert rows(tmp_path, "SELECT step FROM raw.steps ORDER BY step") == [(1,), (2,)]


def test_what_was_seen_is_bounded_and_survives_a_cut(tmp_path, monkeypatch):
    """The file of seen requests keeps the latest, and a record that a crash cut short is none."""
    monkeypatch.setattr(seen_file, "REMEMBERED", 4)
    monkeypatch.setattr(seen_file, "_MAX_BYTES", 8 * 20)
    file = SeenFile(tmp_path)
    for number in range(20):
        file.append({bytes([number]) * 16: Receipt(number)})
    file.close()
    with (tmp_path / "seen").open("ab") as torn:
        torn.write(b"cut short")
    again = SeenFile(tmp_path)
    assert [digest[0] for digest, _ in again.read()] == [16, 17, 18, 19]
    again.append({b"x" * 16: Receipt()})
    again.close()
    assert [(digest[0], receipt.rejected) for digest, receipt in SeenFile(tmp_path).read()][-2:] == [(19, 19), (120, 0)]
    assert (tmp_path / "seen").stat().st_size <= 9 * 20


def test_a_run_of_a_newer_version_is_refused(start, tmp_path):
    """Telemetry for a run that a newer stepmeter began is refused for good; that of others is taken."""
    run = create_run(tmp_path, "newer", None)
    content = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**content, "store_version": 99}))
    processor = start()
    newer = traces(step_span(1), resource=run_resource("newer"))
    with pytest.raises(RefusedError, match="store version 99"):
        processor.accept(record(newer))
    newer.resource_spans.extend(traces(step_span(2), step_span(3)).resource_spans)
    receipt = processor.accept(record(newer))
    assert (receipt.rejected, "store version 99" in receipt.reason) == (1, True)
    processor.close()
    assert rows(tmp_path, "SELECT step FROM steps ORDER BY step") == [(2,), (3,)]


def test_a_run_that_is_being_sealed_asks_to_come_again(start, tmp_path):
    """While a run is sealed its telemetry is refused for now; a run without telemetry is let go of."""
    run = create_run(tmp_path, "other", None)
    processor = start()
    body = record(traces(step_span(1), resource=run_resource("other")))
    with try_locked(run / ".writers"), pytest.raises(UnavailableError, match="is being sealed"):
        processor.accept(body)
    processor.accept(body)
    with try_locked(run / ".writers") as free:
        assert not free
    processor._runs.release_idle(0.0)
    with try_locked(run / ".writers") as free:
        assert free


def test_segments_fold_while_telemetry_comes(start, tmp_path, monkeypatch):
    """A collector folds its own segments in the background, and what it wrote adds up."""
    monkeypatch.setattr(folder, "_INTERVAL_S", 0.05)
    monkeypatch.setattr(folder, "compact", partial(compact, fold=2))
    processor = start(flush_interval_s=0.01)
    for step in range(1, 8):
        processor.accept(record(traces(step_span(step))))
        wait_until(lambda: not processor._open and not processor._backlog)
    wait_until(lambda: processor._health.counts().get("segments_folded", 0) >= 3)
    processor.close()
    assert rows(tmp_path, "SELECT count(*), count(DISTINCT step), max(step) FROM steps") == [(7, 7, 7)]
