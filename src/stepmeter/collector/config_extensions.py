"""Extensions in a configuration: bearer tokens, in the Collector's own grammar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stepmeter.collector.yaml_tree import Node

_TYPE = "bearertokenauth"


def read_tokens(extensions: Node | None, service: Node) -> dict[str, str]:
    """Read the section `extensions`.

    Args:
        extensions: The section, or None.
        service: The section `service`, which lists those in use.

    Returns:
        Tokens by component id, of those in use.

    Raises:
        ConfigError: An extension is unknown, has no token, or is listed and not there.
    """
    tokens: dict[str, str] = {}
    for name, node in (extensions.entries() if extensions else {}).items():
        if name.partition("/")[0] != _TYPE:
            raise node.error(f'unknown extension "{name}"; known: {_TYPE}, also with /name')
        tokens[name] = _token(node)
    keys = service.mapping("key", ("pipelines", "extensions"))
    listed = keys["extensions"].items() if "extensions" in keys else []
    for item in listed:
        if item.text() not in tokens:
            raise item.error(f'unknown extension "{item.value}"; known: {", ".join(tokens) or "none"}')
    return {item.text(): tokens[item.text()] for item in listed}


def authenticator(node: Node, tokens: Mapping[str, str]) -> str:
    """Find the token that an endpoint asks for.

    Args:
        node: The value of `auth`.
        tokens: Tokens by component id.

    Returns:
        The token.

    Raises:
        ConfigError: There is no such extension in use.
    """
    keys = node.mapping("key", ("authenticator",))
    if "authenticator" not in keys:
        raise node.error(f"auth without authenticator; expected authenticator: {_TYPE}")
    name = keys["authenticator"].text()
    if name not in tokens:
        raise keys["authenticator"].error(f'no extension "{name}" in service.extensions; add it there')
    return tokens[name]


def _token(node: Node) -> str:
    keys = node.mapping("key", ("token", "filename"))
    if "filename" in keys:
        try:
            token = Path(keys["filename"].text()).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise keys["filename"].error(f"can't be read: {error.strerror}") from None
    else:
        token = keys["token"].text() if "token" in keys else ""
    if not token or not token.isascii() or not token.isprintable():
        # the token itself is a secret and does not belong in a message
        raise node.error("no token, or one that no header can hold; expected token: ${env:NAME} or filename: F")
    return token
