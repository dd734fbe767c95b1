"""`stepmeter alerts explain|test`: what a rule means, and when it would have fired."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from stepmeter.alerts.engine import AlertEngine, Fired
from stepmeter.alerts.functions import FUNCTIONS
from stepmeter.alerts.rule import Rule, parse_rule
from stepmeter.alerts.together import Together, looks_at_others
from stepmeter.conventions.rows import Row
from stepmeter.store.reader import find_run, open_run

if TYPE_CHECKING:
    import argparse

SUMMARY = "alert rules: what one means, and when it would have fired on a run"
EXAMPLE = "stepmeter alerts test 'mean(loss[50]) > 2 => error: loss is high' --run demo"

_ROWS = """
SELECT step, time_ns, "values", stream, coalesce(rank, 0)
FROM history
WHERE ? OR (stream IS NOT DISTINCT FROM ? AND coalesce(rank, 0) = ?)
ORDER BY step, time_ns
"""

_PLACES = "SELECT DISTINCT stream, coalesce(rank, 0) AS rank FROM history ORDER BY stream NULLS FIRST, rank LIMIT 8"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    explain = actions.add_parser("explain", help="write a rule as it is understood", description="Explain a rule.")
    explain.add_argument("rule", metavar="RULE", help="EXPR => LEVEL: MESSAGE")
    explain.set_defaults(action=_explain)
    test = actions.add_parser("test", help="run a rule over a stored run", description="Run a rule over a stored run.")
    test.add_argument("rule", metavar="RULE", help="EXPR => LEVEL: MESSAGE")
    test.add_argument("--run", required=True, metavar="RUN", help="a run directory, or a run's name or id")
    test.add_argument("--stream", help="stream of rows (default: the unnamed one)")
    test.add_argument("--rank", type=int, default=0, help="rank whose rows to take (default: 0)")
    test.add_argument("--mode", choices=("edge", "level"), default="edge", help="edge (default): once until it is over")
    test.add_argument("--for-steps", type=int, default=1, metavar="N", help="how many rows in a row it must hold")
    test.set_defaults(action=_test)


def execute(args: argparse.Namespace) -> int:
    """Do what was asked for.

    Args:
        args: The parsed arguments.

    Returns:
        0, also for a rule that never fires.

    Raises:
        UsageError: The rule is wrong.
        StoreError: The run can't be read.
    """
    code: int = args.action(args)
    return code


def _explain(args: argparse.Namespace) -> int:
    rule = parse_rule(args.rule)
    print(f"condition  {rule.text}")
    print(f"level      {rule.level}")
    print(f"message    {rule.message or '(the condition with its values)'}")
    print(f"metrics    {', '.join(sorted(rule.metrics)) or 'none'}")
    for name in sorted(rule.functions):
        print(f"{name:<10} {FUNCTIONS[name].brief}")
    if looks_at_others(rule):
        print("seen by    the collector, which has the rows of all ranks and streams")
    if rule.time_based:
        print("looked at  on each row and every few seconds")
    return 0


def _test(args: argparse.Namespace) -> int:
    rule = parse_rule({"rule": args.rule, "mode": args.mode, "for_steps": args.for_steps, "recovery": True})
    rows = _stored_rows(args, rule)
    fired, unseen = replay(rule, rows)
    for alert in fired:
        print(f"step {alert.step}  {alert.level}  {alert.message}")
    count = sum(not alert.recovered for alert in fired)
    print(f"{count} fired over {len(rows)} rows")
    for line in unseen if rows else [_no_rows(args)]:
        print(f"stepmeter: {line}", file=sys.stderr)
    return 0


def replay(rule: Rule, rows: list[Row]) -> tuple[list[Fired], list[str]]:
    """Run a rule over rows.

    Args:
        rule: The rule.
        rows: In the order of their steps.

    Returns:
        What fired, in order, and a line on each metric that no row has.
    """
    fired: list[Fired] = []
    start_s = rows[0].time_ns / 1e9 if rows else 0.0
    engine = AlertEngine([rule], start_s, fired.append)
    for row in rows:
        engine.on_row(row)
    return fired, engine.unseen()


def _no_rows(args: argparse.Namespace) -> str:
    """Where the rows are, if not where they were looked for."""
    with open_run(find_run(args.run)) as run:
        found = run.snapshot().rows(_PLACES)
    if not found:
        return f"{args.run} holds no rows; stepmeter.log() makes them"
    places = ", ".join(f"--rank {rank}" + ("" if stream is None else f" --stream {stream}") for stream, rank in found)
    return f"{args.run} has no such rows; those that there are: {places}"


def _stored_rows(args: argparse.Namespace, rule: Rule) -> list[Row]:
    """One rank's rows, or for a rule over ranks all of them laid side by side."""
    of_all = looks_at_others(rule)
    with open_run(find_run(args.run)) as run:
        found = run.snapshot().rows(_ROWS, [of_all, args.stream, args.rank])
    together = Together(rule.metrics)
    rows = []
    for step, time_ns, values, stream, rank in found:
        rows.append(Row(step, time_ns, _numbers(json.loads(values))))
        together.add(stream, rank, 0, rows[-1], 0.0)
    return [*together.ready(float("inf"))] if of_all else rows


def _numbers(values: dict[str, Any]) -> dict[str, Any]:
    names = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
    return {key: names.get(value, value) if isinstance(value, str) else value for key, value in values.items()}
