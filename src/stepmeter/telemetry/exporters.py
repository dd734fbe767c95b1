"""The exporters that the user's configuration made, found on the providers and kept safe.

Each exporter's `export` is replaced on the instance, so that it holds for the SDK's own threads as well:

- a forked child sends nothing (the SDK restarts its threads there and would send the parent's counters again);
- a backend that is down is one line on stderr, not a log record for each attempt;
- what was not delivered is counted.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider

from stepmeter.telemetry.guard import Guard

_Result = TypeVar("_Result")
_quiet = threading.local()


def span_exporters(provider: object) -> list[Any]:
    """The exporters behind a tracer provider.

    Args:
        provider: Any tracer provider.

    Returns:
        The exporters of its span processors; empty for a provider that is not the SDK's.
    """
    if not isinstance(provider, TracerProvider):
        return []
    # no public way leads from a provider to its processors
    processors: Iterable[Any] = getattr(provider._active_span_processor, "_span_processors", ())  # noqa: SLF001
    return _distinct(getattr(processor, "span_exporter", None) for processor in processors)


def metric_exporters(provider: object) -> list[Any]:
    """The push exporters behind a meter provider.

    Args:
        provider: Any meter provider.

    Returns:
        The exporters of its periodic readers; empty for a provider that is not the SDK's.
    """
    if not isinstance(provider, MeterProvider):
        return []
    readers: Iterable[Any] = getattr(provider, "_metric_readers", ())
    return _distinct(getattr(reader, "_exporter", None) for reader in readers)


def protect(exporter: Any, guard: Guard) -> None:
    """Keep an exporter from speaking in a forked child and from crying about a backend that is down.

    Args:
        exporter: A span or metric exporter of the SDK's interface.
        guard: Where the backend's failure is said, once.
    """
    if "export" in vars(exporter):
        return
    _hush(logging.getLogger(name) for name in list(logging.root.manager.loggerDict))
    exporter.export = _guarded(exporter, guard, os.getpid())


def unprotect(exporter: Any) -> None:
    """Give an exporter its own `export` back.

    Args:
        exporter: An exporter that `protect` was called on, or not.
    """
    vars(exporter).pop("export", None)


def say_unreachable(exporter: Any, guard: Guard) -> None:
    """Say once that a backend does not take what an exporter sends.

    Args:
        exporter: The exporter.
        guard: Says it.
    """
    endpoint = str(getattr(exporter, "_endpoint", type(exporter).__name__))
    where = endpoint.partition("/v1/")[0]  # of one backend, whichever signal
    guard.say_once(f"backend {where}", f"telemetry could not be delivered to {where}; the program goes on")


def hushed(function: Callable[..., _Result]) -> Callable[..., _Result]:
    """Keep what a function calls from logging about a backend that is down.

    Args:
        function: The function.

    Returns:
        The same, silent in the loggers of the SDK and its exporters.
    """

    def quietly(*args: Any, **kwargs: Any) -> _Result:
        _quiet.on = True
        try:
            return function(*args, **kwargs)
        finally:
            _quiet.on = False

    return quietly


def _guarded(exporter: Any, guard: Guard, pid: int) -> Callable[..., Any]:
    original = hushed(exporter.export)

    def export(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != pid:
            return None
        result = original(*args, **kwargs)
        if getattr(result, "name", "SUCCESS") != "SUCCESS":
            say_unreachable(exporter, guard)
        return result

    return export


def _hush(loggers: Iterable[logging.Logger]) -> None:
    for logger in loggers:
        if logger.name.startswith(("opentelemetry.exporter.", "opentelemetry.sdk.")):
            logger.addFilter(_not_quiet)


def _not_quiet(_: logging.LogRecord) -> bool:
    return not getattr(_quiet, "on", False)


def _distinct(exporters: Iterable[Any]) -> list[Any]:
    return list({id(exporter): exporter for exporter in exporters if exporter is not None}.values())
