"""The words on the wire: every span, metric and attribute name of ours, declared once.

The reference page, the golden schema and the typed columns of the store come from these declarations. Adding a
name is compatible; renaming, removing or retyping one needs a new CONVENTIONS_VERSION.
"""

from __future__ import annotations

from typing import Final

CONVENTIONS_VERSION: Final = "1.0.0"
"""Version of the vocabulary; part of the schema URL that every span and metric carries."""

SCHEMA_URL: Final = f"https://stepmeter.dev/schemas/{CONVENTIONS_VERSION}"
"""Schema URL of the scope `stepmeter`."""

SCOPE_NAME: Final = "stepmeter"
"""Instrumentation scope of everything that we emit ourselves."""
