"""A bounded queue from the training thread to the drain."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

DEFAULT_CAPACITY = 2048
"""Items; at 4,000 steps a second half a second of them."""


class Channel(Generic[Item]):
    """Hands items over by reference, without a lock; a full one drops what comes in and counts it.

    A deque's append is atomic with the interpreter's lock and in the free-threaded build alike.
    Several producers may overshoot the capacity by one item each.

    Args:
        capacity: How many items wait at most.

    Attributes:
        items: What waits, oldest first.
        dropped: How many were not taken.
    """

    __slots__ = ("capacity", "dropped", "items")

    def __init__(self, capacity: int = DEFAULT_CAPACITY) -> None:
        self.items: deque[Item] = deque()
        self.capacity = capacity
        self.dropped = 0

    def __len__(self) -> int:
        return len(self.items)

    def put(self, item: Item) -> bool:
        """Queue one item; never blocks.

        Args:
            item: What to hand over; the producer changes nothing in it afterwards.

        Returns:
            Whether it was queued; False counts it as dropped.
        """
        if len(self.items) < self.capacity:
            self.items.append(item)
            return True
        self.dropped += 1
        return False

    def drain(self) -> list[Item]:
        """Take what is queued at this moment, oldest first.

        Returns:
            The items; those that come in meanwhile wait for the next call.
        """
        popleft = self.items.popleft
        return [popleft() for _ in range(len(self.items))]
