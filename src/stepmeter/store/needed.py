"""Which views a statement needs: binding all of them costs 0.1 s of CPU, and most statements name one or two."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final

from stepmeter.store.catalog import PUBLIC_VIEWS, public_view
from stepmeter.store.schema import TABLES

if TYPE_CHECKING:
    from stepmeter.store.model import Table


@dataclass(frozen=True, slots=True)
class Needed:
    """What has to be there for a statement.

    Attributes:
        tables: Tables of `raw`.
        views: Public views, in the order in which they build on one another.
    """

    tables: tuple[Table, ...]
    views: tuple[str, ...]


EVERYTHING: Final = Needed(TABLES, PUBLIC_VIEWS)

_WORD: Final = re.compile(r"\w+")
_ABOUT_ALL: Final = re.compile(r"\b(show|describe|pragma|information_schema|(duckdb|pg|sqlite)_\w+)\b")
"""Words of statements that ask which views there are."""


@lru_cache(maxsize=512)
def needed(sql: str) -> Needed:
    """Find what a statement may name.

    Args:
        sql: The statement.

    Returns:
        At least what it names in full: whatever occurs as a word, be it only in a comment, counts as named.
    """
    text = sql.lower()
    if _ABOUT_ALL.search(text):
        return EVERYTHING
    words = set(_WORD.findall(text))
    for name in reversed(PUBLIC_VIEWS):
        if name in words:
            words |= _words_of(name)
    tables = tuple(table for table in TABLES if table.name in words)
    return Needed(tables, tuple(name for name in PUBLIC_VIEWS if name in words))


@cache
def _words_of(view: str) -> frozenset[str]:
    return frozenset(_WORD.findall(public_view(view).lower()))
