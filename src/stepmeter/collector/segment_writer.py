"""From decoded requests to segments: one per run and table, all with the number of their journal file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stepmeter.collector.decode import Row, Rows, RunKey
from stepmeter.collector.signals import CONTENTS, read
from stepmeter.store.schema import META, RESOURCES, STEPS, TABLES, Table
from stepmeter.store.segments import CATALOG_FILE, complete_run, write_segment
from stepmeter.store.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stepmeter.collector.health import Health
    from stepmeter.collector.journal import Record
    from stepmeter.collector.open_runs import OpenRuns
    from stepmeter.store.model import Block

_FIRST: Final = (META, RESOURCES)
"""Tables that others refer to are written before them."""
_ORDER: Final = (*_FIRST, *(table for table in TABLES if table not in _FIRST))


class SegmentWriter:
    """Writes segments under one collector's id; used by one thread."""

    def __init__(self, runs: OpenRuns, collector: str, health: Health) -> None:
        self._runs = runs
        self._collector = collector
        self._health = health
        self._paths: dict[RunKey, Path] = {}
        self._known: dict[RunKey, set[Row]] = {}
        self._watermarks: dict[RunKey, Watermark] = {}

    def open_run(self, run: RunKey) -> Path | None:
        """Make sure that a run's directory is whole.

        Args:
            run: The run.

        Returns:
            Its directory; None when it takes no more rows.

        Raises:
            OSError: It can't be written.
            UnavailableError: It can't be written now.
        """
        path = self._runs.path(run)
        if path is None:
            return None
        if self._paths.get(run) != path or not (path / CATALOG_FILE).exists():
            complete_run(path)
            self._paths[run] = path
            self._known[run] = set()
            self._watermarks[run] = Watermark(path, self._collector)
        return path

    def write(self, number: int, default_run: RunKey, requests: Iterable[Record]) -> int:
        """Write the segments of one journal file; doing it again changes nothing.

        Args:
            number: The file's number.
            default_run: The run of telemetry that names none.
            requests: The requests.

        Returns:
            The number of rows written.

        Raises:
            OSError: A segment can't be written; the whole file is to be tried again.
            UnavailableError: Likewise.
        """
        rows = Rows()
        for record in requests:
            CONTENTS[record.signal].decode(read(record), default_run, rows)
        runs = dict.fromkeys(run for run, _ in rows.tables)
        return sum(self._write_run(number, run, rows) for run in runs)

    def _write_run(self, number: int, run: RunKey, rows: Rows) -> int:
        path = self.open_run(run)
        if path is None:
            singly = sum(len(of_table) for (of_run, _), of_table in rows.tables.items() if of_run == run)
            number_of_rows = singly + _size(rows.blocks_of(run, STEPS))
            self._health.warn("rows_refused", f"run {run.run_id} takes no more rows", number_of_rows)
            return 0
        known = self._known[run]
        told = {table: self._news(known, table, rows.of(run, table)) for table in _FIRST}
        written = 0
        for table in _ORDER:
            of_table = told[table] if table in told else rows.of(run, table)
            blocks = rows.blocks_of(run, table)
            if of_table or blocks:
                write_segment(path, table, of_table, self._collector, number, blocks)
                written += len(of_table) + _size(blocks)
        known.update(row for of_table in told.values() for row in of_table)
        steps, blocks = rows.of(run, STEPS), rows.blocks_of(run, STEPS)
        if steps or blocks:
            self._watermarks[run].advance(number, steps, blocks)
        return written

    def _news(self, known: set[Row], table: Table, rows: list[Row]) -> list[Row]:
        """What this process has not told a run yet: resources come with every request, but change rarely."""
        candidates = [("collector", self._collector)] if table is META else dict.fromkeys(rows)
        return [row for row in candidates if row not in known]


def _size(blocks: Iterable[Block]) -> int:
    return sum(block.length for block in blocks)
