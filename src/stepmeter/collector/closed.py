"""A journal file that is complete and waits to become segments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepmeter.collector.journal import read_journal
from stepmeter.collector.seen import Receipt, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from stepmeter.collector.decode import RunKey
    from stepmeter.collector.journal import Record


@dataclass(frozen=True, slots=True)
class Closed:
    """A journal file that waits to become segments.

    Attributes:
        number: Its number, which is that of the segments.
        path: Where it is.
        size_bytes: What its requests take in memory.
        seen: The requests that then count as seen, by hash.
        load: Gives the run of telemetry that names none, and the requests.
    """

    number: int
    path: Path
    size_bytes: int
    seen: Mapping[bytes, Receipt]
    load: Callable[[], tuple[RunKey, list[Record]]]


def left_over(number: int, path: Path, default_run: RunKey) -> Closed:
    """Take up the journal file of a process that is gone.

    Args:
        number: Its number.
        path: Where it is.
        default_run: The run of telemetry that names none, if the file does not say.

    Returns:
        The file, each request once; when it can't be read, `load` raises what was wrong.
    """
    try:
        run, records = read_journal(path)
    except (ValueError, KeyError, TypeError) as error:
        problem = error

        def fail() -> tuple[RunKey, list[Record]]:
            raise problem

        return Closed(number, path, 0, {}, fail)
    unique = {digest_of(record): record for record in records}
    return Closed(
        number, path, 0, dict.fromkeys(unique, Receipt()), lambda: (run or default_run, list(unique.values()))
    )
