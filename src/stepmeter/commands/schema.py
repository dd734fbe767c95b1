"""`stepmeter schema`: the vocabulary, and whether it still is what others rely on."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from stepmeter.conventions import CONVENTIONS_VERSION, registry
from stepmeter.errors import CheckFailedError, UsageError

SUMMARY = "print the telemetry vocabulary, or check it against the golden schema"
EXAMPLE = "stepmeter schema --format markdown"

_GOLDEN = Path("src/stepmeter/conventions/golden.json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments.

    Args:
        parser: The subcommand's parser.
    """
    parser.add_argument("--format", choices=("json", "markdown"), default="json", help="how to print (default: json)")
    parser.add_argument("--check", action="store_true", help="exit with 5 when a name changed without a new version")
    parser.add_argument(
        "--update-golden",
        action="store_true",
        help="in a checkout of stepmeter: rewrite the golden file and the page",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Print, check or rewrite.

    Args:
        arguments: Those declared by `configure`.

    Returns:
        0.

    Raises:
        CheckFailedError: The vocabulary is not the golden one.
        UsageError: There is no checkout to rewrite.
    """
    if arguments.update_golden:
        _update()
    elif arguments.check:
        _check()
    elif arguments.format == "markdown":
        print(registry.reference_page())
    else:
        print(_text(), end="")
    return 0


def _text() -> str:
    return json.dumps(registry.registry(), indent=1, ensure_ascii=False) + "\n"


def _check() -> None:
    from stepmeter.store import reference as store

    before, now = registry.golden(), registry.registry()
    _refuse_unversioned(before)
    if before != now:
        raise CheckFailedError("the vocabulary and its golden file differ; `make golden` rewrites the file")
    if _GOLDEN.exists():  # in a checkout
        store.check(Path())
    for path, page in _pages().items():
        if path.exists() and path.read_text(encoding="utf-8") != page:
            raise CheckFailedError(f"{path} is not what the code says; `make docs` rewrites it")
    print("the vocabulary is the golden one, and the reference pages are current", file=sys.stderr)


def _pages() -> dict[Path, str]:
    """The generated pages on what goes on the wire and what the verdict can say; the store keeps its own."""
    from stepmeter.report.reference import pages

    return {Path("docs/reference/telemetry.md"): registry.reference_page(), **pages()}


def _update() -> None:
    from stepmeter.store import reference as store

    if not _GOLDEN.parent.is_dir():
        raise UsageError(f"no {_GOLDEN.parent} here; --update-golden works in a checkout of stepmeter")
    if _GOLDEN.exists():
        _refuse_unversioned(json.loads(_GOLDEN.read_text(encoding="utf-8")))
    _GOLDEN.write_text(_text(), encoding="utf-8")
    store.update(Path())
    for path, page in _pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")


def _refuse_unversioned(before: dict[str, object]) -> None:
    changes = registry.breaking_changes(before, registry.registry())
    if changes and before["version"] == CONVENTIONS_VERSION:
        raise CheckFailedError(
            f"{len(changes)} breaking changes at version {before['version']} ({changes[0]}); raise CONVENTIONS_VERSION"
        )
