"""The statistics of a caching allocator, as torch's C functions give them."""

from __future__ import annotations

from typing import Any

_POOLS = ("all", "small_pool", "large_pool")
_STATS = ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes", "allocation", "segment")


class FakeAllocator:
    """Holds what tensors hold; reserves in blocks of 2 MiB and keeps them; peaks last until they are reset."""

    BLOCK = 2 << 20

    def __init__(self) -> None:
        self.current = dict.fromkeys(_STATS, 0)
        self.peak = dict.fromkeys(_STATS, 0)
        self.reads = 0
        self.resets = 0

    def allocate(self, size_bytes: int) -> None:
        """A tensor of that size is made."""
        self._move(size_bytes, 1)

    def free(self, size_bytes: int) -> None:
        """A tensor of that size goes; what is reserved stays."""
        self._move(-size_bytes, -1)

    def transient(self, size_bytes: int) -> None:
        """A tensor of that size is made and goes."""
        self.allocate(size_bytes)
        self.free(size_bytes)

    def _move(self, size_bytes: int, count: int) -> None:
        for name in ("allocated_bytes", "active_bytes", "requested_bytes"):
            self.current[name] += size_bytes
        self.current["allocation"] += count
        needed = -(-self.current["allocated_bytes"] // self.BLOCK) * self.BLOCK
        self.current["reserved_bytes"] = max(self.current["reserved_bytes"], needed)
        self.current["segment"] = self.current["reserved_bytes"] // self.BLOCK
        for name, value in self.current.items():
            self.peak[name] = max(self.peak[name], value)

    def stats(self, _device: int = 0) -> dict[str, Any]:
        """What `torch._C._cuda_memoryStats` gives."""
        self.reads += 1

        def stat(name: str, pool: str) -> dict[str, int]:
            if pool == "large_pool":
                return {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
            return {"current": self.current[name], "peak": self.peak[name], "allocated": 0, "freed": 0}

        nested: dict[str, Any] = {name: {pool: stat(name, pool) for pool in _POOLS} for name in _STATS}
        return nested | {"num_ooms": 0, "oversize_segments": {"current": 0, "peak": 0, "allocated": 0, "freed": 0}}

    def reset_peaks(self, _device: int = 0) -> None:
        """What `torch._C._cuda_resetPeakMemoryStats` does."""
        self.resets += 1
        self.peak = dict(self.current)
