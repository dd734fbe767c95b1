"""What keeps a directory of runs in order: an overview, new paths after a move, and removal of whole runs."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepmeter.errors import StoreError
from stepmeter.store.durable import locked, try_locked
from stepmeter.store.identity import list_runs, read_identity, require_known_version
from stepmeter.store.segments import LOCK_FILE, WRITERS_FILE, publish_catalog
from stepmeter.store.watermark import read_watermarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from stepmeter.store.identity import RunIdentity


@dataclass(frozen=True, slots=True)
class RunOverview:
    """A run at a glance.

    Attributes:
        path: Its directory.
        identity: Its identity.
        size_bytes: What it takes on disk.
        changed_ns: When it was last written, Unix time in ns.
        steps: Steps recorded, over all ranks and attempts; None when that is not known without opening it.
        written_now: Whether a collector may still write to it.
    """

    path: Path
    identity: RunIdentity
    size_bytes: int
    changed_ns: int
    steps: int | None
    written_now: bool


def overview(directory: Path) -> list[RunOverview]:
    """Look at all runs of a directory.

    Args:
        directory: Where runs live.

    Returns:
        One for each run, latest change last.
    """
    found = [_overview(run, identity) for run, identity in list_runs(directory)]
    return sorted(found, key=lambda run: run.changed_ns)


def relink(run: Path) -> bool:
    """Let `run.duckdb` find a run's segments again after its directory was moved.

    Args:
        run: The run directory.

    Returns:
        Whether anything had to be done; False for a sealed run, which has no paths in it.

    Raises:
        StoreVersionError: A newer stepmeter wrote it.
        StoreError: It has no segments.
    """
    identity = read_identity(run)
    require_known_version(run, identity)
    if identity.sealed_ns is not None:
        return False
    if not (run / "data").is_dir():
        raise StoreError(f"{run}: no directory data in it; copy the whole run")
    with locked(run / LOCK_FILE):
        publish_catalog(run, mixed=identity.migrated_from is not None)
    return True


def to_prune(
    runs: Sequence[RunOverview], *, keep: int | None, changed_before_ns: int | None, max_bytes: int | None
) -> list[RunOverview]:
    """Choose which runs go; one that is being written never does.

    Args:
        runs: Runs, latest change last.
        keep: How many of the latest stay; None for all.
        changed_before_ns: Runs without a change since then go; None for none.
        max_bytes: The oldest go until the rest takes no more than this; None for no limit.

    Returns:
        The runs that go, oldest first.
    """
    going = {run.path for run in runs[: max(0, len(runs) - keep)]} if keep is not None else set()
    if changed_before_ns is not None:
        going |= {run.path for run in runs if run.changed_ns < changed_before_ns}
    going -= {run.path for run in runs if run.written_now}
    left_bytes = sum(run.size_bytes for run in runs if run.path not in going)
    for run in runs:
        if max_bytes is None or left_bytes <= max_bytes:
            break
        if run.path not in going and not run.written_now:
            going.add(run.path)
            left_bytes -= run.size_bytes
    return [run for run in runs if run.path in going]


def remove(runs: Iterable[RunOverview]) -> list[RunOverview]:
    """Remove runs from disk, each in one piece.

    Args:
        runs: The runs.

    Returns:
        Those removed; one that a collector took up meanwhile stays.

    Raises:
        OSError: One can't be removed.
    """
    return [run for run in runs if _remove(run.path)]


def _remove(run: Path) -> bool:
    with try_locked(run / WRITERS_FILE) as alone:
        if not alone:
            return False
        going = run.parent / f".gone-{uuid.uuid4().hex}"
        run.rename(going)
    shutil.rmtree(going)
    return True


def _overview(run: Path, identity: RunIdentity) -> RunOverview:
    # locks are touched by looking, so that they say nothing about when a run was written
    files = [path for path in run.rglob("[!.]*") if path.is_file()]
    stats = [path.lstat() for path in files]
    marks = read_watermarks(run)
    return RunOverview(
        run,
        identity,
        sum(stat.st_blocks * 512 for stat in stats),
        max((stat.st_mtime_ns for stat in stats), default=identity.created_ns),
        sum(mark.recorded_steps for mark in marks) if marks is not None else identity.sealed_steps,
        _is_written(run),
    )


def _is_written(run: Path) -> bool:
    if not (run / WRITERS_FILE).exists():
        return False
    with try_locked(run / WRITERS_FILE) as alone:
        return not alone
