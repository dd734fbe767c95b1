"""Feeds what Atheris makes up to parsing, checking and decoding; anything but rows or an error of ours ends it.

    python fuzz_requests.py CORPUS -max_total_time=20 -timeout=5 -rss_limit_mb=2048

The first byte chooses signal and encoding, the rest is the body.
"""

import sys

import atheris

with atheris.instrument_imports(include=["stepmeter.collector"]):
    from stepmeter.collector import step_columns
    from stepmeter.collector.decode import Rows, RunKey
    from stepmeter.collector.journal import Record
    from stepmeter.collector.otlp import SIGNALS, Encoding, MalformedError, parse
    from stepmeter.collector.signals import CONTENTS, read
from stepmeter.store.arrow import to_arrow

step_columns.FEWEST = 1  # few steps are to be taken together as well


def test_one(data):
    if not data:
        return
    kind, encoding = SIGNALS[data[0] % 3], Encoding(data[0] // 3 % 2)
    try:
        message = parse(kind, encoding, data[1:])
    except MalformedError:
        return
    rejected, reason = CONTENTS[kind].reject(message)
    assert bool(rejected) == bool(reason)
    rows = Rows()
    run = RunKey("run-1")
    CONTENTS[kind].decode(read(Record(kind, encoding, data[1:])), run, rows)
    for (of_run, table), found in rows.tables.items():
        blocks = rows.blocks_of(of_run, table)
        assert to_arrow(table, found, blocks).num_rows == len(found) + sum(block.length for block in blocks)


atheris.Setup(sys.argv, test_one)
atheris.Fuzz()
