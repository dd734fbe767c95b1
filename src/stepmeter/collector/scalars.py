"""Single values of a configuration: durations, flags, sizes, files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stepmeter.errors import UsageError

if TYPE_CHECKING:
    from stepmeter.collector.yaml_tree import Node

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_SECONDS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def duration_s(node: Node) -> float:
    """Read a duration.

    Args:
        node: The value.

    Returns:
        Seconds.

    Raises:
        ConfigError: It is no duration.
    """
    match = _DURATION.fullmatch(node.text())
    if match is None:
        raise node.error(f'found "{node.value}", expected a duration such as 500ms or 1s')
    return float(match[1]) * _SECONDS[match[2]]


def positive(node: Node) -> int:
    """Read a number above 0.

    Args:
        node: The value.

    Returns:
        The number.

    Raises:
        ConfigError: It is none.
    """
    number = int(node.value) if isinstance(node.value, str) and node.value.isdecimal() else node.value
    if type(number) is not int or number < 1:
        raise node.error(f'found "{node.value}", expected a number above 0')
    return number


def flag(node: Node) -> bool:
    """Read a yes or no.

    Args:
        node: The value.

    Returns:
        The answer.

    Raises:
        ConfigError: It is neither.
    """
    found = {"true": True, "false": False}.get(str(node.value).lower())
    if found is None:
        raise node.error(f'found "{node.value}", expected true or false')
    return found


def choice(node: Node, known: tuple[str, ...]) -> str:
    """Read one of several words.

    Args:
        node: The value.
        known: The words.

    Returns:
        The word.

    Raises:
        ConfigError: It is another one.
    """
    text = node.text()
    if text not in known:
        raise node.error(f'found "{text}", expected {" or ".join(known)}')
    return text


def existing_file(node: Node) -> str:
    """Read the path of a file that is there.

    Args:
        node: The value.

    Returns:
        The path.

    Raises:
        ConfigError: There is no such file.
    """
    text = node.text()
    if not Path(text).is_file():
        raise node.error(f'no file "{text}"; give the path of an existing one')
    return text


def alert_rule(node: Node) -> Any:
    """Read an alert rule over ranks.

    Args:
        node: Text, or a mapping of text and options.

    Returns:
        What `parse_rule` takes.

    Raises:
        ConfigError: It is none, or looks at no other rank.
    """
    from stepmeter.alerts.together import checked_rule  # when there is a rule: it loads the grammar's parser

    given = node.value
    if not isinstance(given, str):
        given = {key: option.value for key, option in node.entries().items()}
    try:
        checked_rule(given)
    except UsageError as error:
        raise node.error(str(error)) from None
    return given
