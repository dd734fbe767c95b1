"""Folding of segments, in levels: 32 of one level become one of the next, rows once each and in order.

Readers in other processes go on throughout: a folded file is renamed into its place, covers its parts from then
on, and the parts go after a grace period. A lock on the run keeps collectors from folding at the same time, so that
a row which two of them received is folded once.
"""

from __future__ import annotations

import glob
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stepmeter.store.durable import PARTIAL, replacing, try_locked
from stepmeter.store.files import COLD, DATA, Segment, cold_name, covering, current, list_segments
from stepmeter.store.identity import read_identity
from stepmeter.store.views import distinct_rows, literal, names, not_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from duckdb import DuckDBPyConnection

    from stepmeter.store.model import Table

FOLD: Final = 32
"""How many segments become one."""
GRACE_S: Final = 30.0
"""How long a file that no longer counts stays for readers that listed it before."""

COMPACT_LOCK_FILE: Final = ".compact.lock"
_MAX_BYTES: Final = 256 << 20
"""Files are not folded beyond this size, so that a fold stays a matter of seconds."""
_STALE_PARTIAL_S: Final = 3600.0


def compact(
    run: Path,
    collector: str,
    below: int,
    *,
    fold: int = FOLD,
    grace_s: float = GRACE_S,
    covered_since_s: dict[str, float] | None = None,
) -> int:
    """Fold what one collector has written, and remove what was folded before.

    Args:
        run: The run directory.
        collector: The collector whose segments are folded.
        below: Only live segments with a number below this one, which may be written again.
        fold: How many segments become one, 2 or more.
        grace_s: How long covered files stay.
        covered_since_s: When each covered file was first seen to be, on the monotonic clock, since the wall clock may
            jump and cut a reader's grace short; to be handed in again the next time. None: they are seen now.

    Returns:
        How many folded segments were written; 0 also when another collector is folding, or the run is sealed.

    Raises:
        OSError: The run can't be written.
        duckdb.Error: A segment can't be read.
    """
    with try_locked(run / COMPACT_LOCK_FILE) as free:
        if not free or read_identity(run).sealed_ns is not None:
            return 0
        segments = list_segments(run)
        written = 0
        for table, found in segments.items():
            batch = next_batch([s for s in found if s.collector == collector], below, fold)
            if batch:
                _fold(run, table, batch, found)
                written += 1
            _remove_covered(found, grace_s, {} if covered_since_s is None else covered_since_s)
        return written


def next_batch(segments: Sequence[Segment], below: int, fold: int) -> list[Segment]:
    """Choose what to fold next: the oldest segments of the highest level that has enough of them.

    Args:
        segments: Those of one table and collector.
        below: Only live segments with a number below this one.
        fold: How many become one.

    Returns:
        The segments, or nothing when no level has enough.
    """
    counting = [s for s in current(segments) if s.level or s.first < below]
    for level in sorted({segment.level for segment in counting}, reverse=True):
        # a level's files lie between those of higher levels and those of lower ones, so that they are neighbours
        batch = [segment for segment in counting if segment.level == level][:fold]
        if len(batch) == fold and sum(Path(segment.path).stat().st_size for segment in batch) <= _MAX_BYTES:
            return batch
    return []


def _fold(run: Path, table: Table, batch: Sequence[Segment], segments: Iterable[Segment]) -> None:
    import duckdb

    level = batch[-1].level + 1
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": "1GB",
        "temp_directory": str(run / ".fold"),
    }
    with duckdb.connect(config=config) as connection:
        connection.execute(f"CREATE VIEW batch AS {_select(table, batch, segments)}")
        span = _span(connection, table)
        rows = "SELECT * FROM batch" if batch[0].level else _new_rows(connection, table, segments, span)
        order = f" ORDER BY {table.order}" if table.order else ""
        target = (
            run
            / DATA
            / table.name
            / COLD
            / f"c={batch[0].collector}"
            / cold_name(batch[0].first, batch[-1].last, level, span)
        )
        with replacing(target) as partial:
            connection.execute(f"COPY ({rows}{order}) TO {literal(str(partial))} (FORMAT parquet, COMPRESSION zstd)")


def _new_rows(
    connection: DuckDBPyConnection, table: Table, segments: Iterable[Segment], span: tuple[int, int] | None
) -> str:
    """Rows of live segments once each, without those that any folded segment has."""
    connection.execute(f"CREATE VIEW once AS {distinct_rows(table, 'batch')}")
    near = [s for s in current(segments) if s.level and table.key and _meet(s, span)]
    if not near:
        return f"SELECT {names(table)} FROM once"
    connection.execute(f"CREATE VIEW folded AS {_select(table, near, segments)}")
    return not_in(table, "once", "folded")


def _meet(segment: Segment, span: tuple[int, int] | None) -> bool:
    if span is None or segment.low is None or segment.high is None:
        return True
    return segment.low <= span[1] and span[0] <= segment.high


def _span(connection: DuckDBPyConnection, table: Table) -> tuple[int, int] | None:
    if table.order is None:
        return None
    low, high = connection.execute(f'SELECT min("{table.order}"), max("{table.order}") FROM batch').fetchall()[0]
    return None if low is None else (low, high)


def _select(table: Table, wanted: Sequence[Segment], segments: Iterable[Segment]) -> str:
    """Read segments; the run's first one stands among them, since it has all columns of this version."""
    first = [s.path for s in segments if s.level and s.collector == "none"]
    files = [s.path for s in wanted]
    listed = ", ".join(literal(glob.escape(file)) for file in dict.fromkeys(files + first))
    mine = ", ".join(literal(file) for file in files)
    return (
        f"SELECT {names(table)} FROM read_parquet([{listed}], union_by_name = true, "
        f"hive_partitioning = false, filename = '_file') WHERE _file IN ({mine})"
    )


def _remove_covered(segments: Sequence[Segment], grace_s: float, covered_since_s: dict[str, float]) -> None:
    """Unlink what a folded file has covered for long enough, and what a crash left half written."""
    now_s = time.monotonic()
    by_collector: dict[str, list[Segment]] = {}
    for segment in segments:
        by_collector.setdefault(segment.collector, []).append(segment)
    for segment in segments:
        if segment.collector == "none" or not covering(segment, by_collector[segment.collector]):
            continue
        if now_s - covered_since_s.setdefault(segment.path, now_s) >= grace_s:
            Path(segment.path).unlink(missing_ok=True)
            del covered_since_s[segment.path]
    for directory in {Path(segment.path).parent for segment in segments}:
        for partial in directory.glob(f"*{PARTIAL}"):
            with suppress(FileNotFoundError):
                if time.time() - partial.stat().st_mtime > _STALE_PARTIAL_S:
                    partial.unlink()
