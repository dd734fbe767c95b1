"""YAML whose every value knows the line it came from, so that an error can say where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from stepmeter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VARIABLE = re.compile(r"\$\$|\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a YAML file.

    Attributes:
        where: `file:line`.
        value: A dictionary of nodes, a list of nodes, or what a scalar says: text, a number, a boolean, None.
    """

    where: str
    value: Any

    def error(self, message: str) -> ConfigError:
        """An error about this value.

        Args:
            message: What was found, what was expected.

        Returns:
            The error, to be raised.
        """
        return ConfigError(f"{self.where}: {message}")

    def mapping(self, what: str, known: tuple[str, ...]) -> dict[str, Node]:
        """The value as a mapping with known keys.

        Args:
            what: What the keys are, for the error.
            known: The keys there may be.

        Returns:
            The nodes by key; an empty value is an empty mapping.

        Raises:
            ConfigError: It is no mapping, or has a key that is not known.
        """
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.error(f'found "{self.value}", expected a mapping with {_or(known)}')
        for key, node in self.value.items():
            if key not in known:
                raise node.error(f'unknown {what} "{key}"; known: {", ".join(known) or "none"}')
        return self.value

    def entries(self) -> dict[str, Node]:
        """The value as a mapping with keys of any name.

        Returns:
            The nodes by key; an empty value is an empty mapping.

        Raises:
            ConfigError: It is no mapping.
        """
        if self.value is not None and not isinstance(self.value, dict):
            raise self.error(f'found "{self.value}", expected a mapping')
        return self.value or {}

    def text(self) -> str:
        """The value as text.

        Returns:
            The text, not empty.

        Raises:
            ConfigError: It is empty, a mapping or a list.
        """
        if self.value is None or isinstance(self.value, dict | list) or self.value == "":
            raise self.error("found nothing or a collection, expected text")
        return str(self.value)

    def items(self) -> list[Node]:
        """The value as a list.

        Returns:
            Its nodes.

        Raises:
            ConfigError: It is no list.
        """
        if not isinstance(self.value, list):
            raise self.error("expected a list, such as [otlp]")
        return self.value


def read_yaml(file: Path, environ: Mapping[str, str]) -> Node:
    """Read a YAML file.

    Args:
        file: The file.
        environ: For `${env:NAME}` and `${env:NAME:-default}`; `$$` stands for a dollar sign.

    Returns:
        Its root.

    Raises:
        ConfigError: It can't be read or is no YAML.
    """
    try:
        root = yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        return _node(root, file, environ)
    except OSError as error:
        raise ConfigError(f"{file}: can't be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not readable as text"
        raise ConfigError(f"{file}{line}: not YAML: {problem}") from None


def _node(node: Any, file: Path, environ: Mapping[str, str]) -> Node:
    if node is None:
        return Node(f"{file}:1", None)
    where = f"{file}:{node.start_mark.line + 1}"
    if isinstance(node, yaml.MappingNode):
        return Node(where, {str(key.value): _at(key, _node(value, file, environ), file) for key, value in node.value})
    if isinstance(node, yaml.SequenceNode):
        return Node(where, [_node(item, file, environ) for item in node.value])
    text = _expand(where, node.value, environ)
    if text != node.value or node.style in {"'", '"'}:
        return Node(where, text)
    return Node(where, yaml.SafeLoader("").construct_object(node))


def _at(key: Any, value: Node, file: Path) -> Node:
    """A value is found where its key is, even if it begins on a later line."""
    return Node(f"{file}:{key.start_mark.line + 1}", value.value)


def _expand(where: str, text: str, environ: Mapping[str, str]) -> str:
    def replace(match: re.Match[str]) -> str:
        name, default = match.groups()
        if name is None:
            return "$"
        found = environ.get(name) or default
        if found is None:
            raise ConfigError(f"{where}: {name} is not set and has no default; write ${{env:{name}:-default}}")
        return found

    return _VARIABLE.sub(replace, text)


def _or(known: tuple[str, ...]) -> str:
    return " or ".join(known) or "nothing"
