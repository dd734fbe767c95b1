"""Plugins on spans: what is measured beside time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from stepmeter.capture.span import Span

OWN_KEYS: Final = frozenset({"time_ms", "count"})
"""What belongs to the span itself; a plugin that returns one of them has it dropped."""


class Plugin(Protocol):
    """Measures something across a span. A plain function of the span is a plugin that only looks at its end."""

    def start(self, span: Span) -> None:
        """Called before the span's clock starts."""

    def end(self, span: Span) -> Mapping[str, Any]:
        """Called after it has stopped; returns values by name, without what was not measured."""
        ...


class Measuring:
    """Calls the plugins of spans; one that fails is passed over and named once.

    Args:
        complain: Says a line once for its key.
        encode: Makes plain values of what a plugin returned.
    """

    __slots__ = ("_complain", "_encode")

    def __init__(
        self, complain: Callable[[str, str], None], encode: Callable[[str, Mapping[Any, Any]], dict[str, Any]]
    ) -> None:
        self._complain = complain
        self._encode = encode

    def begin(self, span: Span) -> None:
        """Call every plugin's `start`.

        Args:
            span: It is about to start.
        """
        for plugin in span.plugins:
            start = getattr(plugin, "start", None)
            if start is not None:
                try:
                    start(span)
                except Exception as error:  # the user's plugin
                    self._failed(plugin, "start", error)

    def end(self, span: Span) -> None:
        """Call every plugin's `end` and keep what they return; the later of two wins a key.

        Args:
            span: Its clock has stopped.
        """
        found: dict[str, Any] = {}
        for plugin in span.plugins:
            end = getattr(plugin, "end", plugin)
            try:
                found.update(self._encode("plugin", end(span) or {}))
            except Exception as error:  # the user's plugin
                self._failed(plugin, "end", error)
        for key in OWN_KEYS & found.keys():
            del found[key]
            self._complain(f"plugin key {key}", f"a plugin returned {key}, which the span itself measures; dropped")
        span.metrics = found

    def _failed(self, plugin: object, hook: str, error: Exception) -> None:
        name = getattr(plugin, "__name__", type(plugin).__name__)
        self._complain(
            f"plugin {name} {hook}",
            f"plugin {name} failed in {hook} and is passed over: {type(error).__name__}: {error}",
        )
