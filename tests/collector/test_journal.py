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
