"""Which GPUs CUDA would show to a process, without CUDA: the rules of CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Sequence

_UUID_PREFIXES = ("GPU-", "MIG-")


def visible_uuids(setting: str | None, uuids: Sequence[str]) -> tuple[str, ...]:
    """Resolve CUDA_VISIBLE_DEVICES.

    Args:
        setting: The variable's value; None when it is not set.
        uuids: UUIDs of all GPUs of the host, in CUDA's order.

    Returns:
        UUIDs of the visible devices in the order in which CUDA would number them. The list ends before the first
        entry that names no device, as CUDA's does; a device named twice leaves none. A MIG instance stands as it
        was given, since the host's list has no entry for it.

    Source:
        CUDA C++ Programming Guide, "CUDA Environment Variables".
    """
    if setting is None:
        return tuple(uuids)
    visible: list[str] = []
    for entry in setting.split(","):
        uuid = _resolve(entry.strip(), uuids)
        if uuid is None:
            break
        if uuid in visible:
            return ()
        visible.append(uuid)
    return tuple(visible)


def _resolve(entry: str, uuids: Sequence[str]) -> str | None:
    if entry.startswith("MIG-"):
        return entry
    if entry.startswith(_UUID_PREFIXES):
        matches = [uuid for uuid in uuids if uuid.startswith(entry)]
        return matches[0] if len(matches) == 1 else None
    if entry.isascii() and entry.isdigit() and int(entry) < len(uuids):
        return uuids[int(entry)]
    return None
