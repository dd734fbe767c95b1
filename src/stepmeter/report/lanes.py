"""Lanes of a trace: spans that do not nest get lines of their own."""

from __future__ import annotations

import heapq


class Lanes:
    """The lanes of one track; memory is bounded by what overlaps.

    Spans come in the order of their starts, outer ones first. A span goes on the lane whose innermost open span is its
    parent and ends no earlier; where its parent is elsewhere or unknown, on the first free lane; else on a new one.
    """

    def __init__(self) -> None:
        self._stacks: list[list[tuple[int, str]]] = []  # of each lane: end and span id, outermost first
        self._free: list[int] = []
        self._ends: list[tuple[int, int]] = []  # when each occupied lane's outermost span ends
        self._lane_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._stacks)

    @property
    def open_spans(self) -> int:
        """Spans that are remembered at this moment."""
        return len(self._lane_of)

    def place(self, span_id: str, parent_id: str | None, start_ns: int, end_ns: int) -> int:
        """Choose the lane of a span.

        Args:
            span_id: The span.
            parent_id: Its parent, or None.
            start_ns: Its start; no earlier than that of the span before.
            end_ns: Its end.

        Returns:
            Number of the lane, from 0.
        """
        ends = self._ends
        if ends and ends[0][0] <= start_ns:
            if len(ends) == 1 and not (self._free and self._free[0] < ends[0][1]):
                return self._again(span_id, end_ns)
            self._expire(start_ns)
        lane = self._beside_parent(parent_id, start_ns, end_ns)
        if lane is None:
            if self._free:
                lane = heapq.heappop(self._free)
            else:
                lane = len(self._stacks)
                self._stacks.append([])
            heapq.heappush(self._ends, (end_ns, lane))
        self._stacks[lane].append((end_ns, span_id))
        self._lane_of[span_id] = lane
        return lane

    def _again(self, span_id: str, end_ns: int) -> int:
        """The lane of the only open root, which is over: most spans of most programs come one after another."""
        lane = self._ends[0][1]
        self._ends[0] = (end_ns, lane)
        self._stacks[lane] = [(end_ns, span_id)]
        self._lane_of = {span_id: lane}
        return lane

    def _beside_parent(self, parent_id: str | None, start_ns: int, end_ns: int) -> int | None:
        lane = None if parent_id is None else self._lane_of.get(parent_id)
        if lane is None:
            return None
        stack = self._stacks[lane]
        while stack and stack[-1][0] <= start_ns and stack[-1][1] != parent_id:
            self._lane_of.pop(stack.pop()[1], None)
        if stack and stack[-1][1] == parent_id and stack[-1][0] >= end_ns:
            return lane
        return None

    def _expire(self, now_ns: int) -> None:
        while self._ends and self._ends[0][0] <= now_ns:
            _, lane = heapq.heappop(self._ends)
            for _, span_id in self._stacks[lane]:
                self._lane_of.pop(span_id, None)
            self._stacks[lane].clear()
            heapq.heappush(self._free, lane)
