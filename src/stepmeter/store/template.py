"""Databases with all views bound and commented on, which the package brings, so that no run pays for that."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA_DIR: Final = Path(__file__).parent / "schema"


def template_file(kind: str, statements: Iterable[str]) -> Path:
    """Where a database with these definitions is, if the package brings one; the name tells an outdated one.

    Args:
        kind: What it is for.
        statements: All that it is made of.

    Returns:
        Its path; `make golden` writes it.
    """
    content = "\0".join(statements)
    return SCHEMA_DIR / f"{kind}-{hashlib.blake2b(content.encode(), digest_size=8).hexdigest()}.duckdb"
