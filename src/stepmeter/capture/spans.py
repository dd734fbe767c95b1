"""What a program calls to time its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.context import get_current

from stepmeter.capture.scope import OURS
from stepmeter.capture.span import INHERIT, Span


def span(
    name: str,
    /,
    *,
    attributes: Mapping[str, Any] | None = None,
    print_fn: Any = INHERIT,
    plugins: Any = INHERIT,
    **more: Any,
) -> Span:
    """Time a part of a program.

    Args:
        name: Its name; slashes around it are taken off, one inside joins two levels.
        attributes: What describes it, under any names.
        print_fn: Called with one line at its start and end; None silences a tree. What encloses it says when not given.
        plugins: What to measure beside time; None for nothing. What encloses it says when not given.
        **more: Attributes whose names are identifiers.

    Returns:
        A context manager, async context manager and decorator.
    """
    if attributes is not None:
        more = {**attributes, **more}
    if print_fn is not INHERIT or plugins is not INHERIT:
        print_fn, plugins = _handlers(print_fn, plugins, more)
    if type(name) is not str or not name or "/" in name:
        name = str(name).strip("/") or "span"
    return Span(name, more or None, print_fn, plugins)


def _handlers(print_fn: Any, plugins: Any, attributes: dict[str, Any]) -> tuple[Any, Any]:
    """What is no handler and no plugins was meant as an attribute of that name, and a span never raises."""
    if print_fn is not INHERIT and print_fn is not None and not callable(print_fn):
        attributes["print_fn"], print_fn = print_fn, INHERIT
    if plugins is not INHERIT and plugins is not None and not isinstance(plugins, Sequence):
        if callable(plugins) or hasattr(plugins, "end"):
            plugins = (plugins,)
        else:
            attributes["plugins"], plugins = plugins, INHERIT
    return print_fn, plugins


def start_span(
    name: str,
    /,
    *,
    attributes: Mapping[str, Any] | None = None,
    print_fn: Any = INHERIT,
    plugins: Any = INHERIT,
    **more: Any,
) -> Span:
    """Start a span that `end()` ends, in any scope and on any thread.

    Args:
        name: As for `span`, like the rest.
        attributes: What describes it, under any names.
        print_fn: Called with one line at its start and end.
        plugins: What to measure beside time.
        **more: Attributes whose names are identifiers.

    Returns:
        The started span.
    """
    return span(name, attributes=attributes, print_fn=print_fn, plugins=plugins, **more).start()


def current_span() -> Span | None:
    """The innermost span of ours that is open here.

    Returns:
        The span, or None.
    """
    found: Span | None = get_current().get(OURS)  # type: ignore[assignment] # the context is untyped
    while found is not None and found.end_ns:
        found = found.outside.get(OURS)  # type: ignore[assignment]
    return found
