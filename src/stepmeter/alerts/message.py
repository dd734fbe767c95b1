"""What an alert says: its template, filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from stepmeter.alerts.evaluate import compile_value
from stepmeter.alerts.memory import Memory
from stepmeter.alerts.rule import Rule
from stepmeter.alerts.tree import And, Binary, Call, Compare, Metric, Node, Not, Number, Or, Unary, Windowed, render

_FIELD: Final = re.compile(r"\{([^{}:]+)(:[^{}]*)?\}")
_DEFAULT: Final = "{name} at step {step}: {expr}"


def fill(rule: Rule, memory: Memory, row: Mapping[str, Any], more: Mapping[str, Any]) -> str:
    """Write an alert's message.

    Args:
        rule: Its rule.
        memory: What the rule looked at.
        row: Values of the newest row.
        more: Further names, such as run and project.

    Returns:
        The message; what stands in braces and is not known stays as it was written.
    """
    known = {**row, **more, "name": rule.name, "step": memory.step, "time": f"{memory.now_s:.3f}"}

    def value(match: re.Match[str]) -> str:
        name, form = match[1].strip(), match[2]
        if name in {"expr", "condition"}:
            return explain(rule.condition, memory) if name == "expr" else rule.text
        if name not in known:
            return match[0]
        try:
            return format(known[name], form[1:] if form else "")
        except (TypeError, ValueError):
            return str(known[name])

    return _FIELD.sub(value, rule.message or _DEFAULT)


def explain(node: Node, memory: Memory) -> str:
    """Write a condition with the values that it had.

    Args:
        node: The condition.
        memory: What it looked at.

    Returns:
        For instance `loss=3.1 > 2 * mean(loss[50])=2.4`.
    """
    if isinstance(node, And | Or):
        return (" and " if isinstance(node, And) else " or ").join(explain(each, memory) for each in node.values)
    if isinstance(node, Not):
        return f"not {explain(node.value, memory)}"
    if isinstance(node, Compare):
        parts = [explain(node.values[0], memory)]
        for sign, each in zip(node.signs, node.values[1:], strict=True):
            parts += [sign, explain(each, memory)]
        return " ".join(parts)
    if isinstance(node, Unary) and isinstance(node.value, Number):
        return render(node)
    if isinstance(node, Binary):
        return f"{explain(node.left, memory)} {node.sign} {explain(node.right, memory)}"
    if isinstance(node, Metric | Windowed | Call):
        return f"{render(node)}={_short(compile_value(node)(memory))}"
    return render(node)


def _short(value: Any) -> str:
    if value is None:
        return "unknown"
    return str(value).lower() if isinstance(value, bool) else f"{value:.6g}"
