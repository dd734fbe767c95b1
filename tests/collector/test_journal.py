"""Tests of the journal and of who owns it."""

from __future__ import annotations

import os
import resource
import signal

import pytest

from stepmeter.collector.decode import RunKey
from stepmeter.collector.journal import JournalFile, Record, journal_files, read_journal
from stepmeter.collector.otlp import METRICS, TRACES, Encoding
from stepmeter.collector.slot import take_slot
from stepmeter.collector.spares import Spares
from stepmeter.store.schema import STEPS
from stepmeter.store.segments import create_run, write_segment

RUN = RunKey("run-1", "demo")
RECORDS = [
    Record(TRACES, Encoding.PROTOBUF, b"one"),
    Record(METRICS, Encoding.JSON, b"{}"),
    Record(TRACES, Encoding.JSON, b""),
]


def test_what_was_appended_is_read_back(tmp_path):
    """A journal file gives back its requests in order, and the run that it was begun for."""
    file = JournalFile(tmp_path, 7, RUN)
    file.append(RECORDS[:2])
    file.append(RECORDS[2:])
    file.close()
    run, records = read_journal(file.path)
    assert (run.run_id, run.run_name) == ("run-1", "demo")
    assert records == RECORDS
    assert journal_files(tmp_path) == [(7, file.path)]


def test_a_torn_record_ends_the_journal(tmp_path):
    """Cut anywhere, a journal gives back every request that is whole, and no other."""
    file = JournalFile(tmp_path, 1, RUN)
    file.append(RECORDS)
    file.close()
    whole = file.path.read_bytes()
    found = set()
    for size in range(len(whole)):
        file.path.write_bytes(whole[:size])
        _, records = read_journal(file.path)
        assert records == RECORDS[: len(records)]
        found.add(len(records))
    assert found == {0, 1, 2}


def test_a_flipped_bit_ends_the_journal(tmp_path):
    """A request whose checksum is wrong is not given back, nor is what follows it."""
    file = JournalFile(tmp_path, 1, RUN)
    file.append(RECORDS)
    file.close()
    damaged = bytearray(file.path.read_bytes())
    damaged[damaged.index(b"one")] ^= 1
    file.path.write_bytes(damaged)
    assert read_journal(file.path)[1] == []


def test_a_write_that_fails_leaves_the_journal_as_it_was(tmp_path):
    """Requests that did not fit are not given back later, and the next ones that fit are."""
    file = JournalFile(tmp_path, 1, RUN)
    file.append(RECORDS[:1])
    old_limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old_handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat(file.path).st_size + 40, old_limits[1]))  # noqa: PTH116
        with pytest.raises(OSError, match="too large"):
            file.append([Record(TRACES, Encoding.PROTOBUF, b"x" * 100)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limits)
        signal.signal(signal.SIGXFSZ, old_handler)
    file.append(RECORDS[1:])
    file.close()
    assert read_journal(file.path)[1] == RECORDS


def test_two_collectors_never_share_a_slot(tmp_path):
    """A slot that is held is passed over; once released it is taken again."""
    first, second = take_slot(tmp_path), take_slot(tmp_path)
    assert first.collector.endswith("-0")
    assert second.collector.endswith("-1")
    first.release()
    again = take_slot(tmp_path)
    assert again.collector == first.collector
    second.release()
    again.release()


def test_numbers_go_on_where_they_were(tmp_path):
    """A number is used once: it follows the newest journal file, or the newest segment where there is no journal."""
    slot = take_slot(tmp_path)
    assert slot.first_number == 1
    slot.release()
    write_segment(create_run(tmp_path, "run-1", None), STEPS, [], slot.collector, 41)
    slot = take_slot(tmp_path)
    assert slot.first_number == 42
    JournalFile(slot.journal_dir, 77, RUN).close()
    slot.release()
    slot = take_slot(tmp_path)
    assert slot.first_number == 78
    slot.release()


def test_a_file_is_used_again_without_its_old_requests(tmp_path):
    """A file that is written over gives back what its present use wrote, cut anywhere, and nothing from before."""
    spares = Spares(tmp_path)
    first = JournalFile(tmp_path, 1, RUN, spares)
    first.append(RECORDS * 3)
    first.close()
    whole = first.path.read_bytes()
    spares.keep(first.path)
    assert journal_files(tmp_path) == []

    second = JournalFile(tmp_path, 2, RunKey("run-2"), spares)
    second.append(RECORDS[:1])
    assert second.path.stat().st_size == len(whole)  # it is the same file
    run, records = read_journal(second.path)
    assert (run.run_id, records) == ("run-2", RECORDS[:1])
    now = second.path.read_bytes()
    for size in range(len(now)):  # a crash may leave any part of it as it was before
        second.path.write_bytes(now[:size] + whole[size:])
        assert read_journal(second.path)[1] in ([], RECORDS[:1])
    second.path.write_bytes(now)
    second.close(trim=True)
    assert second.path.stat().st_size < len(whole)
    assert read_journal(second.path)[1] == RECORDS[:1]


def test_few_files_are_kept_and_none_for_ever(tmp_path, monkeypatch):
    """Two spare files are kept, none of unusual size, and those of a process that is gone are removed."""
    spares = Spares(tmp_path)
    for number in (1, 2, 3):
        file = JournalFile(tmp_path, number, RUN)
        file.close()
        spares.keep(file.path)
    assert len(list(tmp_path.glob("*.spare"))) == 2
    monkeypatch.setattr("stepmeter.collector.spares.MAX_BYTES", 10)
    large = JournalFile(tmp_path, 4, RUN)
    large.close()
    left = Spares(tmp_path)
    left.keep(large.path)
    assert list(tmp_path.iterdir()) == []
    assert not left.take(tmp_path / "5")


def test_a_journal_of_an_older_version_is_read(tmp_path):
    """Checksums that do not begin with the file's number, as before files were used again, are known as well."""
    older = JournalFile(tmp_path, 0, RUN)
    older.append(RECORDS)
    older.close()
    assert read_journal(older.path.rename(tmp_path / "000000000009.journal"))[1] == RECORDS
