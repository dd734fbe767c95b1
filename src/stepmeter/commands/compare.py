"""`stepmeter compare A B`: is the second run faster, slower, or the same?"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING

from stepmeter.errors import CheckFailedError, StepmeterError

if TYPE_CHECKING:
    import argparse

SUMMARY = "compare two runs or summaries: verdict, changes by section, a gate for CI"
EXAMPLE = 'stepmeter compare baseline/final_summary.json demo --fail-on "step_time>5%"'


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = "a run (directory, name or id) or a final_summary.json"
    parser.add_argument("a", metavar="A", help=f"the run before: {what}")
    parser.add_argument("b", metavar="B", help=f"the run after: {what}")
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON, for programs")
    parser.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="EXPR",
        help='exit with 5 when it holds beyond noise, and with 4 when it can not be judged: "step_time>5%%" is '
        'relative, "input_wait_share>2pp" in percentage points; may be given several times',
    )


def execute(args: argparse.Namespace) -> int:
    """Print the comparison and judge the conditions.

    Args:
        args: The parsed arguments.

    Returns:
        0, also for a regression that no condition names.

    Raises:
        CheckFailedError: A condition holds.
        StoreError: A condition can't be judged, which is told after the comparison.
    """
    from stepmeter.report import gate
    from stepmeter.report.compare import compare
    from stepmeter.report.compare_text import comparison_json, comparison_text
    from stepmeter.report.documents import read_summary
    from stepmeter.report.summary import DEFAULT_WIDTH

    conditions = [gate.parse(text) for text in args.fail_on]
    comparison = compare(read_summary(args.a), read_summary(args.b))
    outcomes, obstacle = [], None
    try:
        outcomes = [gate.judge(condition, comparison) for condition in conditions]
    except StepmeterError as error:
        obstacle = error
    if args.json:
        print(json.dumps(comparison_json(comparison, outcomes), indent=2, allow_nan=False, ensure_ascii=False))
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if is_terminal else DEFAULT_WIDTH
        print(comparison_text(comparison, outcomes, width=width, color=is_terminal), end="")
    if obstacle is not None:
        raise obstacle
    failed = [outcome.condition.text for outcome in outcomes if outcome.holds]
    if failed:
        raise CheckFailedError(f"B is worse than allowed: {'; '.join(failed)}")
    return 0
