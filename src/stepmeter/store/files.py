"""Names of segments, and which of those that lie in a directory count.

data/<table>/live/c=<collector>/<number>.parquet                        a second of rows
data/<table>/cold/c=<collector>/<first>-<last>.L<level>.<low>_<high>.parquet  those of many, folded into one

A folded file covers the files of lower levels whose numbers lie within its own; what is covered no longer counts
and goes after a grace period. One listing therefore always adds up to all rows, each once.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stepmeter.store.schema import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from stepmeter.store.model import Table

LIVE: Final = "live"
COLD: Final = "cold"
DATA: Final = "data"

_NAME: Final = re.compile(r"(\d+)(?:-(\d+)\.L(\d+)\.(?:(-?\d+)_(-?\d+)|all))?\.parquet")


@dataclass(frozen=True, slots=True)
class Segment:
    """One Parquet file of a table.

    Attributes:
        path: Where it is.
        collector: Who wrote it.
        first: Least number of the live segments in it.
        last: Greatest number.
        level: 0 for a live segment; a folded one holds files of lower levels.
        low: Least value of the table's order column in it; None when not known.
        high: Greatest value.
    """

    path: str
    collector: str
    first: int
    last: int
    level: int = 0
    low: int | None = None
    high: int | None = None


def live_name(number: int) -> str:
    """Name of a live segment.

    Args:
        number: Its number.

    Returns:
        The file's name.
    """
    return f"{number:012d}.parquet"


def cold_name(first: int, last: int, level: int, span: tuple[int, int] | None) -> str:
    """Name of a folded segment.

    Args:
        first: Least number in it.
        last: Greatest number in it.
        level: Its level, 1 or more.
        span: Least and greatest value of the order column; None when the table has none or there is no row.

    Returns:
        The file's name.
    """
    values = f"{span[0]}_{span[1]}" if span else "all"
    return f"{first:012d}-{last:012d}.L{level}.{values}.parquet"


def list_segments(run: Path) -> dict[Table, tuple[Segment, ...]]:
    """List everything that lies in a run, covered or not.

    Args:
        run: The run directory.

    Returns:
        The segments of each table.

    Raises:
        FileNotFoundError: The run has no data, or lost them while they were listed.
    """
    data = run.absolute() / DATA
    before = data.stat()
    found = {table: tuple(_of_table(data / table.name)) for table in TABLES}
    # a run that is sealed loses its segments in one piece; half a listing must not pass for a whole one
    if not os.path.samestat(before, data.stat()):
        raise FileNotFoundError(str(data))
    return found


def current(segments: Iterable[Segment]) -> tuple[Segment, ...]:
    """Leave out what a folded segment covers.

    Args:
        segments: Segments of one table.

    Returns:
        Those that count, per collector in the order of their numbers.
    """
    found: list[Segment] = []
    for of_one in _by_collector(segments).values():
        kept: list[Segment] = []
        for segment in sorted(of_one, key=lambda s: -s.level):
            if not covering(segment, kept):
                kept.append(segment)
        found.extend(sorted(kept, key=lambda s: s.first))
    return tuple(found)


def covering(segment: Segment, others: Iterable[Segment]) -> Segment | None:
    """Find a folded segment that covers another.

    Args:
        segment: The one that may be covered.
        others: Segments of the same table and collector.

    Returns:
        The first that covers it, or None.
    """
    first, last, level = segment.first, segment.last, segment.level
    return next((s for s in others if s.level > level and s.first <= first and last <= s.last), None)


def _by_collector(segments: Iterable[Segment]) -> dict[str, list[Segment]]:
    found: dict[str, list[Segment]] = {}
    for segment in segments:
        found.setdefault(segment.collector, []).append(segment)
    return found


def _of_table(table: Path) -> Iterator[Segment]:
    for tier in (LIVE, COLD):
        for directory in _entries(table / tier):
            collector = directory.name.removeprefix("c=")
            for entry in _entries(directory.path):
                segment = _parse(entry.path, entry.name, collector)
                if segment is not None:
                    yield segment


def _parse(path: str, name: str, collector: str) -> Segment | None:
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    first, last, level, low, high = (None if text is None else int(text) for text in match.groups())
    assert first is not None  # noqa: S101 - for the type checker
    return Segment(path, collector, first, first if last is None else last, level or 0, low, high)


def _entries(directory: str | Path) -> list[os.DirEntry[str]]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []
