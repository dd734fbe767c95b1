"""The public SQL surface as data and as a page, and whether it still is what others rely on."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from stepmeter.errors import CheckFailedError
from stepmeter.store.catalog import PUBLIC_VIEWS, catalog_template, comment_on, write_public_views
from stepmeter.store.schema import STORE_VERSION, TABLES
from stepmeter.store.seal import sealed_template, write_sealed_template
from stepmeter.store.segments import CATALOG_FILE, create_run
from stepmeter.store.views import listed_view

GOLDEN: Final = Path("src/stepmeter/store/golden.json")
PAGE: Final = Path("docs/reference/sql.md")

_INTRODUCTION: Final = """\
# The store in SQL

Generated from `stepmeter.store` by `make docs`; do not edit. Store version {version}.

`stepmeter sql RUN QUERY` asks a run; so does any DuckDB client, also while the run is written:
`duckdb -readonly RUN/run.duckdb`. Open it read-only. A client other than ours may, rarely, meet a segment that was just
folded into another (`No such file`); ask again. [Twenty queries](../how-to/queries.md) to begin with.

Times are integers: Unix time in nanoseconds. What was not measured is null, never 0. `attributes` is one JSON object:
`attributes ->> '$.key'`, or `attributes ->> '$."dotted.key"'`.
"""


def describe() -> dict[str, Any]:
    """Everything that a query may name.

    Returns:
        `version`, and `views` by name: `comment` and `columns` by name with `type` and `comment`. Tables of segments
        are named `raw.…`.
    """
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS run; USE run; CREATE SCHEMA raw")
        for table in TABLES:
            connection.execute(listed_view(table, [], [], version=STORE_VERSION))
            comment_on(connection, "VIEW", f"raw.{table.name}", table)
        write_public_views(connection)
        comments = connection.execute(
            "SELECT schema_name, view_name, comment FROM duckdb_views() WHERE NOT internal AND database_name = 'run'"
        ).fetchall()
        columns = connection.execute(
            "SELECT schema_name, table_name, column_name, data_type, comment FROM duckdb_columns() "
            "WHERE NOT internal AND database_name = 'run' ORDER BY table_name, column_index"
        ).fetchall()
    views = {_name(schema, view): {"comment": comment, "columns": {}} for schema, view, comment in comments}
    for schema, view, column, kind, comment in columns:
        views[_name(schema, view)]["columns"][column] = {"type": kind, "comment": comment}
    order = [*PUBLIC_VIEWS, *(f"raw.{table.name}" for table in TABLES)]
    return {"version": STORE_VERSION, "views": {name: views[name] for name in order}}


def reference_page() -> str:
    """The public SQL surface as a page.

    Returns:
        Markdown.
    """
    found = describe()
    lines = [_INTRODUCTION.format(version=found["version"]), "## Views", ""]
    for name, view in found["views"].items():
        if name == f"raw.{TABLES[0].name}":
            lines += ["## Tables", "", "What the views are made of: rows as they came, each once.", ""]
        lines += [f"### `{name}`", "", f"{view['comment']}", "", "| column | type | what |", "|---|---|---|"]
        lines += [f"| `{column}` | {c['type']} | {c['comment']} |" for column, c in view["columns"].items()]
        lines.append("")
    return "\n".join(lines)


def breaking_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What would break a query that was written for the older surface.

    Args:
        before: The older surface, as `describe` gives it.
        now: The newer one.

    Returns:
        One line for each view or column that went and each type that changed; empty when names were only added.
    """
    changes = []
    for name, view in before["views"].items():
        if name not in now["views"]:
            changes.append(f"{name} is gone")
            continue
        columns = now["views"][name]["columns"]
        for column, old in view["columns"].items():
            if column not in columns:
                changes.append(f"{name}.{column} is gone")
            elif columns[column]["type"] != old["type"]:
                changes.append(f"{name}.{column} was {old['type']} and is {columns[column]['type']}")
    return changes


def check(root: Path) -> None:
    """Compare the surface with its golden file and its page.

    Args:
        root: A checkout of stepmeter.

    Raises:
        CheckFailedError: They differ, or a name went without a new store version.
    """
    now = describe()
    before = json.loads((root / GOLDEN).read_text(encoding="utf-8"))
    _refuse_unversioned(before, now)
    if before != now:
        raise CheckFailedError(f"the SQL surface and {GOLDEN} differ; `make golden` rewrites the file")
    if (root / PAGE).read_text(encoding="utf-8") != reference_page():
        raise CheckFailedError(f"{PAGE} is not what the schema says; `make docs` rewrites it")
    if _templates(root) != _wanted_templates(root):
        raise CheckFailedError(f"{GOLDEN.parent}/schema has not the files of bound views; `make golden` rewrites them")


def update(root: Path) -> None:
    """Rewrite the golden file and the page.

    Args:
        root: A checkout of stepmeter.

    Raises:
        CheckFailedError: A name went without a new store version.
    """
    now = describe()
    golden = root / GOLDEN
    if golden.exists():
        _refuse_unversioned(json.loads(golden.read_text(encoding="utf-8")), now)
    golden.write_text(json.dumps(now, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (root / PAGE).parent.mkdir(parents=True, exist_ok=True)
    (root / PAGE).write_text(reference_page(), encoding="utf-8")
    _update_templates(root)


def _update_templates(root: Path) -> None:
    """Write the databases with bound views that are not there: no two are the same byte for byte."""
    live, sealed = wanted = _wanted_templates(root)
    for path in _templates(root):
        if path not in wanted:
            path.unlink()
    if not sealed.exists():
        write_sealed_template(sealed)
    if not live.exists():
        with tempfile.TemporaryDirectory() as directory:  # a run that finds none binds its own
            shutil.copyfile(create_run(Path(directory), "template", None) / CATALOG_FILE, live)


def _wanted_templates(root: Path) -> list[Path]:
    return [root / GOLDEN.parent / "schema" / path.name for path in (catalog_template(), sealed_template())]


def _templates(root: Path) -> list[Path]:
    return sorted((root / GOLDEN.parent / "schema").glob("*.duckdb"))


def _refuse_unversioned(before: dict[str, Any], now: dict[str, Any]) -> None:
    changes = breaking_changes(before, now)
    if changes and before["version"] == now["version"]:
        raise CheckFailedError(
            f"{len(changes)} breaking changes of the SQL surface at version {before['version']} ({changes[0]}); "
            "raise STORE_VERSION and write a migration"
        )


def _name(schema: str, view: str) -> str:
    return view if schema == "main" else f"{schema}.{view}"
