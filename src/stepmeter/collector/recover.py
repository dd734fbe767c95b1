"""What collectors that are gone left in their journals, into the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepmeter.collector.decode import UNASSIGNED, RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import Health
from stepmeter.collector.slot import slots_with_left_overs

if TYPE_CHECKING:
    from pathlib import Path


def recover(directory: Path) -> int:
    """Write what dead collectors acknowledged and did not come to write.

    Args:
        directory: Where runs live.

    Returns:
        How many requests there were.

    Raises:
        OSError: The directory can't be written.
    """
    health = Health()
    for number in slots_with_left_overs(directory):
        DuckdbProcessor(directory, RunKey(UNASSIGNED), health, slot_number=number).close()
    return health.counts().get("requests_replayed", 0)
