"""What a run is called and which version its tables have: `run.json`."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from stepmeter.errors import StoreVersionError
from stepmeter.store.durable import replacing
from stepmeter.store.schema import STORE_VERSION

if TYPE_CHECKING:
    from pathlib import Path

RUN_FILE: Final = "run.json"

_SAFE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """What `run.json` says.

    Attributes:
        store_version: Version of the tables.
        run_id: Identity of the run.
        run_name: Name for people, or None.
        created_ns: When the directory was made, Unix time in ns.
        sealed_ns: When the run became one native file, Unix time in ns; None while it has segments.
        migrated_from: Oldest version that some of its segments have; None when all are of `store_version`.
        sealed_steps: Steps recorded when it was sealed, over all ranks and attempts; None when that is not known.
    """

    store_version: int
    run_id: str
    run_name: str | None
    created_ns: int
    sealed_ns: int | None = None
    migrated_from: int | None = None
    sealed_steps: int | None = None


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
            int(found["store_version"]),
            str(found["run_id"]),
            found["run_name"],
            int(found["created_ns"]),
            found.get("sealed_ns"),
            found.get("migrated_from"),
            found.get("sealed_steps"),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"no {error} in {RUN_FILE}") from error


def write_identity(run: Path, identity: RunIdentity) -> None:
    """Write a run's `run.json` in one piece.

    Args:
        run: The run directory.
        identity: What it is to say.
    """
    optional = {"sealed_ns", "migrated_from", "sealed_steps"}
    content = {key: value for key, value in asdict(identity).items() if value is not None or key not in optional}
    with replacing(run / RUN_FILE) as file:
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def list_runs(directory: Path) -> list[tuple[Path, RunIdentity]]:
    """List the runs of a directory; whatever else lies there is passed over.

    Args:
        directory: Where runs live.

    Returns:
        Run directories with their identities, in the order of their names.
    """
    runs = sorted(file.parent for file in directory.glob(f"[!.]*/{RUN_FILE}"))
    return [(run, identity) for run in runs if (identity := _identity_or_none(run))]


def require_known_version(run: Path, identity: RunIdentity) -> None:
    """Refuse what a newer stepmeter wrote.

    Args:
        run: The run directory.
        identity: Its identity.

    Raises:
        StoreVersionError: Its version is newer than ours.
    """
    if identity.store_version > STORE_VERSION:
        raise StoreVersionError(
            f"{run}: store version {identity.store_version}, this stepmeter reads up to {STORE_VERSION}; "
            "upgrade it: pip install --upgrade stepmeter"
        )


def _identity_or_none(run: Path) -> RunIdentity | None:
    try:
        return read_identity(run)
    except (ValueError, OSError):
        return None
