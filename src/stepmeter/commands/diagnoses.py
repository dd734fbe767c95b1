"""`stepmeter diagnoses`: what can be found, from the rules' own words."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING

from stepmeter.errors import UsageError

if TYPE_CHECKING:
    import argparse

SUMMARY = "list the diagnoses, or explain one: when it is given, why it matters, what to try"
EXAMPLE = "stepmeter diagnoses --explain INPUT_BOUND"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--explain", metavar="KIND", help="explain one, for example INPUT_BOUND")
    parser.add_argument("--format", choices=("text", "markdown"), default="text", help="how to print (default: text)")


def execute(args: argparse.Namespace) -> int:
    """Print the list, the page or one explanation.

    Args:
        args: The parsed arguments.

    Returns:
        0.

    Raises:
        UsageError: There is no such diagnosis.
    """
    from stepmeter.analysis import catalogue

    if args.explain is not None:
        found = catalogue.find(args.explain)
        if not found:
            raise UsageError(f"no diagnosis {args.explain!r}; {_hint(args.explain)}")
        sys.stdout.write("\n".join(catalogue.explain(entry) for entry in found))
    elif args.format == "markdown":
        sys.stdout.write(catalogue.reference_page())
    else:
        for entry in catalogue.entries():
            print(f"{entry.section.replace('_', ' '):<12}  {', '.join(entry.kinds)}\n{'':<12}  {entry.title}")
    return 0


def _hint(typed: str) -> str:
    from stepmeter.analysis import catalogue

    kinds = sorted({kind for entry in catalogue.entries() for kind in entry.kinds})
    close = get_close_matches(typed.upper(), kinds, n=3)
    return f"close: {', '.join(close)}" if close else "`stepmeter diagnoses` lists them"
