"""One look at a run's directory: which segments there are, and what of them a snapshot wants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepmeter.store.schema import STEPS
from stepmeter.store.segments import first_live_segment
from stepmeter.store.views import listed_view

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from stepmeter.store.files import Segment
    from stepmeter.store.identity import RunIdentity
    from stepmeter.store.model import Table
    from stepmeter.store.watermark import RankWatermark

Cursor = tuple[tuple[str, str, str], ...]
"""The newest segment of each table and collector; equal cursors mean equal data."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What was found.

    Attributes:
        path: The run directory.
        identity: Which run it is.
        segments: Segments by table; empty when the run is sealed.
        marks: How far each rank had come before; None where no collector keeps count.
    """

    path: Path
    identity: RunIdentity
    segments: Mapping[Table, tuple[Segment, ...]]
    marks: tuple[RankWatermark, ...] | None = None

    @property
    def cursor(self) -> Cursor:
        """The newest segment of each table and collector."""
        if not self.segments:
            return (("sealed", "", str(self.identity.sealed_ns)),)
        newest: dict[tuple[str, str], int] = {}
        for table, segments in self.segments.items():
            for segment in segments:
                key = (table.name, segment.collector)
                newest[key] = max(newest.get(key, 0), segment.last)
        return tuple((table, collector, f"{number:012d}") for (table, collector), number in newest.items())

    def view(self, table: Table) -> str:
        """The statement that defines a table over its segments.

        Args:
            table: The table.

        Returns:
            SQL that defines `raw.<table>`.
        """
        of_table = self.segments[table]
        return listed_view(
            table,
            [segment.path for segment in of_table if segment.level],
            [segment.path for segment in of_table if not segment.level],
            version=self.identity.store_version,
            with_all_columns=first_live_segment(self.path, table) if self.identity.migrated_from else None,
        )

    def narrowed(self, first_step: int | None, after: Cursor | None) -> Listing:
        """The same without segments of steps that are not wanted.

        Args:
            first_step: Segments with older steps only are left out; None = none are.
            after: Segments that this cursor has seen are left out; None = none are.

        Returns:
            A listing; other tables are whole in it.
        """
        if STEPS not in self.segments:
            return self
        known = {collector: int(number) for table, collector, number in after or () if table == STEPS.name}
        kept = tuple(
            segment
            for segment in self.segments[STEPS]
            if (first_step is None or segment.high is None or segment.high >= first_step)
            and segment.last > known.get(segment.collector, -1)
        )
        return replace(self, segments={**self.segments, STEPS: kept})
