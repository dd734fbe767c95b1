"""A run is a directory of identity, segments and a DuckDB file of views; each is there whole or not at all.

<dir>/<name>/run.json                                     store_version, run_id, run_name, created_ns
<dir>/<name>/run.duckdb                                   views only, written once
<dir>/<name>/data/<table>/live/c=<collector>/<n>.parquet  segments, numbered by each collector for itself
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.store.schema import META, STORE_VERSION, TABLES, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RUN_FILE: Final = "run.json"
CATALOG_FILE: Final = "run.duckdb"
NO_COLLECTOR: Final = "none"
"""Collector of the segments that every run starts with: they have no rows, but for `meta`."""

_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_LOCK_FILE: Final = ".lock"


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What `run.json` says.

    Attributes:
        store_version: Version of the tables.
        run_id: Identity of the run.
        run_name: Name for people, or None.
        created_ns: When the directory was made, Unix time in ns.
    """

    store_version: int
    run_id: str
    run_name: str | None
    created_ns: int


def safe_name(name: str) -> str:
    """Turn a name from the wire into one that is safe as a directory.

    Args:
        name: Anything at all.

    Returns:
        The name itself when it is 1 to 128 of `A-Z a-z 0-9 . _ -` without a leading dot, else a hash of it.
    """
    if _SAFE.fullmatch(name):
        return name
    return "run-" + hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def create_run(directory: Path, run_id: str, run_name: str | None) -> Path:
    """Make the directory of a run, or find it when it is there, with first segments and `run.duckdb`.

    Args:
        directory: Where runs live; made when it does not exist.
        run_id: Identity of the run.
        run_name: Name for people; names the directory. The id does when None or empty.

    Returns:
        The run directory: `<directory>/<safe name>`, with `-2`, `-3` … when another run has the name.

    Raises:
        OSError: The directory can't be written.
    """
    run = claim_run(directory, run_id, run_name)
    complete_run(run)
    return run


def claim_run(directory: Path, run_id: str, run_name: str | None) -> Path:
    """Make the directory of a run, or find it, at once; our readers see an empty run from here on.

    Args:
        directory: Where runs live; made when it does not exist.
        run_id: Identity of the run.
        run_name: Name for people, or None.

    Returns:
        The run directory, for `complete_run`.

    Raises:
        OSError: The directory can't be written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory / _LOCK_FILE):
        run = next((run for run, identity in list_runs(directory) if identity.run_id == run_id), None)
        if run is not None:
            return run
        identity = RunIdentity(STORE_VERSION, run_id, run_name or None, time.time_ns())
        return _make(directory, identity, safe_name(run_name or run_id))


def complete_run(run: Path) -> None:
    """Write what a claimed run still lacks: a first segment of each table and `run.duckdb`.

    Args:
        run: The run directory.

    Raises:
        OSError: The directory can't be written.
    """
    if (run / CATALOG_FILE).exists():
        return
    with _locked(run / _LOCK_FILE):
        identity = read_identity(run)
        for table in TABLES:
            write_segment(run, table, _first_rows(table, identity), NO_COLLECTOR, 0)
        if not (run / CATALOG_FILE).exists():
            _publish_catalog(run)


def write_segment(run: Path, table: Table, rows: Sequence[tuple[Any, ...]], collector: str, number: int) -> Path:
    """Write rows as one segment, durably; readers see all of it or nothing.

    Args:
        run: The run directory.
        table: The table.
        rows: Tuples in the order of the table's columns.
        collector: Id of the collector that writes; it alone numbers its segments.
        number: Number of the segment; the same number again overwrites, so that a replay adds nothing.

    Returns:
        The segment's path.

    Raises:
        OSError: It can't be written.
    """
    segment = run / "data" / table.name / "live" / f"c={collector}" / f"{number:012d}.parquet"
    _write_parquet(segment, table, rows)
    return segment


def read_identity(run: Path) -> RunIdentity:
    """Read a run's `run.json`.

    Args:
        run: The run directory.

    Returns:
        What it says.

    Raises:
        FileNotFoundError: There is none.
        ValueError: It is not what we write.
    """
    found = json.loads((run / RUN_FILE).read_bytes())
    try:
        return RunIdentity(
            int(found["store_version"]), str(found["run_id"]), found["run_name"], int(found["created_ns"])
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no {error} in {RUN_FILE}") from error


def list_runs(directory: Path) -> list[tuple[Path, RunIdentity]]:
    """List the runs of a directory; whatever else lies there is passed over.

    Args:
        directory: Where runs live.

    Returns:
        Run directories with their identities, in the order of their names.
    """
    runs = sorted(file.parent for file in directory.glob(f"[!.]*/{RUN_FILE}"))
    return [(run, identity) for run in runs if (identity := _identity_or_none(run))]


def _identity_or_none(run: Path) -> RunIdentity | None:
    try:
        return read_identity(run)
    except (ValueError, OSError):
        return None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock between processes, so that two collectors can't both make a run."""
    with file.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _make(directory: Path, identity: RunIdentity, name: str) -> Path:
    """Build the run beside and rename it, so that it never lacks its identity."""
    building = directory / f".new-{uuid.uuid4().hex}"
    building.mkdir()
    try:
        (building / RUN_FILE).write_text(json.dumps(asdict(identity), indent=2) + "\n", encoding="utf-8")
        _sync(building / RUN_FILE)
        for table in TABLES:
            (building / "data" / table.name).mkdir(parents=True)
        return _rename_to_free_name(building, directory, name)
    finally:
        shutil.rmtree(building, ignore_errors=True)


def _rename_to_free_name(building: Path, directory: Path, name: str) -> Path:
    candidate, number = directory / name, 1
    while True:
        if not candidate.exists():
            try:
                return building.rename(candidate)
            except OSError:
                if not candidate.exists():
                    raise
        number += 1
        candidate = directory / f"{name}-{number}"


def _first_rows(table: Table, identity: RunIdentity) -> list[tuple[Any, ...]]:
    if table is not META:
        return []
    return [(key, str(value)) for key, value in asdict(identity).items() if value is not None]


def _publish_catalog(run: Path) -> None:
    from stepmeter.store.catalog import write_catalog

    with tempfile.TemporaryDirectory(prefix=".new-", dir=run) as building:
        file = Path(building) / CATALOG_FILE
        write_catalog(run, file)
        _sync(file)
        file.rename(run / CATALOG_FILE)
    _sync(run)


def _write_parquet(path: Path, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    import pyarrow.parquet

    from stepmeter.store.arrow import to_arrow

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        pyarrow.parquet.write_table(to_arrow(table, rows), partial, compression="zstd")
        _sync(partial)
        partial.rename(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Make a file's content, or a directory's entries, survive a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
