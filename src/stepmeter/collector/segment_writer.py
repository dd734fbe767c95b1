"""From decoded requests to segments: one per run and table, all with the number of their journal file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector.decode import Row, Rows, RunKey
from stepmeter.collector.decode_metrics import decode_points
from stepmeter.collector.decode_traces import decode_spans
from stepmeter.collector.otlp import METRICS, TRACES
from stepmeter.store.identity import RUN_FILE
from stepmeter.store.schema import META, RESOURCES, STEPS, TABLES, Table
from stepmeter.store.segments import claim_run, complete_run, write_segment
from stepmeter.store.watermark import Watermark

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from stepmeter.collector.otlp import Signal

_DECODERS: Final = {TRACES: decode_spans, METRICS: decode_points}
_FIRST: Final = (META, RESOURCES)
"""Tables that others refer to are written before them."""
_ORDER: Final = (*_FIRST, *(table for table in TABLES if table not in _FIRST))


class SegmentWriter:
    """Writes segments under one collector's id; used by one thread."""

    def __init__(self, directory: Path, collector: str) -> None:
        self._directory = directory
        self._collector = collector
        self._runs: dict[RunKey, Path] = {}
        self._known: dict[RunKey, set[Row]] = {}
        self._watermarks: dict[RunKey, Watermark] = {}

    def open_run(self, run: RunKey) -> Path:
        """Make sure that a run's directory is whole.

        Args:
            run: The run.

        Returns:
            Its directory.

        Raises:
            OSError: It can't be written.
        """
        path = self._runs.get(run)
        if path is None or not (path / RUN_FILE).exists():
            path = claim_run(self._directory, run.run_id, run.run_name)
            complete_run(path)
            self._runs[run] = path
            self._known[run] = set()
            self._watermarks[run] = Watermark(path, self._collector)
        return path

    def open_runs(self) -> list[Path]:
        """The runs that this collector has written to.

        Returns:
            Their directories.
        """
        return list(self._runs.values())

    def write(self, number: int, default_run: RunKey, requests: Iterable[tuple[Signal, Any]]) -> int:
        """Write the segments of one journal file; doing it again changes nothing.

        Args:
            number: The file's number.
            default_run: The run of telemetry that names none.
            requests: Signals with their messages.

        Returns:
            The number of rows written.

        Raises:
            OSError: A segment can't be written; the whole file is to be tried again.
        """
        rows = Rows()
        for signal, message in requests:
            _DECODERS[signal](message, default_run, rows)
        runs = dict.fromkeys(run for run, _ in rows.tables)
        return sum(self._write_run(number, run, rows) for run in runs)

    def _write_run(self, number: int, run: RunKey, rows: Rows) -> int:
        path = self.open_run(run)
        known = self._known[run]
        told = {table: self._news(known, table, rows.of(run, table)) for table in _FIRST}
        written = 0
        for table in _ORDER:
            of_table = told[table] if table in told else rows.of(run, table)
            if of_table:
                write_segment(path, table, of_table, self._collector, number)
                written += len(of_table)
        known.update(row for of_table in told.values() for row in of_table)
        if steps := rows.of(run, STEPS):
            self._watermarks[run].advance(number, steps)
        return written

    def _news(self, known: set[Row], table: Table, rows: list[Row]) -> list[Row]:
        """What this process has not told a run yet: resources come with every request, but change rarely."""
        candidates = [("collector", self._collector)] if table is META else dict.fromkeys(rows)
        return [row for row in candidates if row not in known]
