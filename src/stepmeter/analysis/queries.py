"""The queries of the analysis, each a file in `sql/` whose header documents its columns."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def query(name: str) -> str:
    """Read one query.

    Args:
        name: Name of the file without its suffix.

    Returns:
        The SQL text.
    """
    return (resources.files("stepmeter.analysis") / "sql" / f"{name}.sql").read_text(encoding="utf-8")
