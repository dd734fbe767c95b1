"""A rule: when, how loud, what to say, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any, Final, NoReturn

from stepmeter.alerts.functions import TIME_BASED
from stepmeter.alerts.parse import parse_condition
from stepmeter.alerts.tree import Call, Node, metrics_of, render, walk
from stepmeter.errors import UsageError

LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_ALIASES: Final = {"warn": "warning", "err": "error", "fatal": "critical", "crit": "critical"}
_MODES: Final = ("edge", "level")
_ARROW: Final = "=>"
_OPEN, _CLOSE, _QUOTES = "([", ")]", "\"'`"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        condition: When it fires.
        text: The condition in its canonical form.
        level: debug, info, warning, error or critical.
        message: What it says; `{step}`, `{expr}` and names of metrics in braces are filled in.
        name: Its name; two rules of one name are one.
        mode: `edge` fires once until the condition is false again, `level` each time that it holds.
        for_steps: How many evaluations in a row the condition must hold.
        cooldown_s: Least time between two firings in mode `level`, in s.
        max_fires: Most firings in a run; None = no limit.
        recovery: Whether the end of a firing is told as well.
    """

    condition: Node
    text: str
    level: str = "warning"
    message: str = ""
    name: str = ""
    mode: str = "edge"
    for_steps: int = 1
    cooldown_s: float = 300.0
    max_fires: int | None = None
    recovery: bool = False

    @property
    def metrics(self) -> frozenset[str]:
        """Names of the metrics that it looks at."""
        return metrics_of(self.condition)

    def as_mapping(self) -> dict[str, Any]:
        """The rule as `parse_rule` takes it.

        Returns:
            Its text and its options, all plain values.
        """
        options = {name: getattr(self, name) for name in sorted(_OPTIONS - {"level", "message"})}
        return {"rule": f"{self.text} => {self.level}: {self.message}", **options}

    @property
    def functions(self) -> frozenset[str]:
        """Names of the functions that it uses."""
        return frozenset(part.function for part in walk(self.condition) if isinstance(part, Call))

    @property
    def time_based(self) -> bool:
        """Whether it may become true without a row."""
        return bool(self.functions & TIME_BASED)


_OPTIONS: Final = {field.name for field in fields(Rule)} - {"condition", "text"}


def parse_rule(given: Any) -> Rule:
    """Parse a rule.

    Args:
        given: `EXPR => LEVEL: MESSAGE`, where level and message may be left out; or a mapping with that as `rule` and
            the options of `Rule`.

    Returns:
        The rule.

    Raises:
        UsageError: It is none; the message has the column.
    """
    if isinstance(given, Rule):
        return given
    if isinstance(given, str):
        return _parse(given, {})
    if isinstance(given, Mapping) and isinstance(given.get("rule"), str):
        options = {key: value for key, value in given.items() if key != "rule"}
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise UsageError(f"alert rule: unknown option {unknown[0]!r}; known: {', '.join(sorted(_OPTIONS))}")
        return _parse(given["rule"], options)
    raise UsageError(f'alert rule {given!r}: expected text "EXPR => LEVEL: MESSAGE" or a mapping with "rule"')


def level_of(word: str) -> str | None:
    """The level that a word names.

    Args:
        word: In any case; warn, err, crit and fatal are known too.

    Returns:
        The level; None for another word.
    """
    lower = word.strip().lower()
    lower = _ALIASES.get(lower, lower)
    return lower if lower in LEVELS else None


def _parse(text: str, options: Mapping[str, Any]) -> Rule:
    arrow = _arrow(text)
    condition_text = text if arrow is None else text[:arrow]
    if not condition_text.strip():
        raise UsageError("alert rule, column 1: found nothing, expected a condition")
    condition = parse_condition(condition_text)
    level, message = "warning", ""
    if arrow is not None:
        level, message = _level_and_message(text[arrow + len(_ARROW) :])
    made = {"level": level, "message": message, **options}
    made["level"] = level_of(str(made["level"])) or _refuse("level", made["level"], LEVELS)
    canonical = render(condition)
    digest = blake2b(repr((canonical, sorted(made.items()))).encode(), digest_size=4).hexdigest()
    made.setdefault("name", f"rule_{digest}")
    _check(made)
    return Rule(condition, canonical, **made)


def _level_and_message(text: str) -> tuple[str, str]:
    word, colon, rest = text.partition(":")
    level = level_of(word)
    if level is not None:
        return level, rest.strip()
    return "warning", text.strip() if not (colon and not word.strip()) else rest.strip()


def _arrow(text: str) -> int | None:
    """Where the arrow is that is in no brackets and no quotes."""
    depth, quote = 0, ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in _QUOTES:
            quote = character
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif depth <= 0 and text.startswith(_ARROW, index):
            return index
    return None


def _check(options: Mapping[str, Any]) -> None:
    if options.get("mode", "edge") not in _MODES:
        _refuse("mode", options["mode"], _MODES)
    for_steps = options.get("for_steps", 1)
    if not isinstance(for_steps, int) or for_steps < 1:
        _refuse("for_steps", for_steps, ("a whole number from 1",))
    cooldown_s = options.get("cooldown_s", 0)
    if not isinstance(cooldown_s, int | float) or cooldown_s < 0:
        _refuse("cooldown_s", cooldown_s, ("seconds, 0 or more",))
    most = options.get("max_fires")
    if most is not None and (not isinstance(most, int) or most < 1):
        _refuse("max_fires", most, ("a whole number from 1",))


def _refuse(option: str, found: object, expected: tuple[str, ...]) -> NoReturn:
    raise UsageError(f"alert rule: {option} {found!r}, expected {', '.join(expected)}")
