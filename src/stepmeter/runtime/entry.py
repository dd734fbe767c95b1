"""Where OpenTelemetry's auto-instrumentation comes in; each of the two ways in is enough."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from stepmeter.runtime import session


def pre_instrument() -> None:
    """Start stepmeter in this process, even where all instrumentations are disabled by name."""
    session.start(os.environ)


class StepmeterInstrumentor(BaseInstrumentor):  # type: ignore[misc] # the base class has no types
    """Turns the patches on torch on and off."""

    def instrumentation_dependencies(self) -> Collection[str]:
        """What must be installed.

        Returns:
            Nothing: torch is patched if and when the program imports it.
        """
        return ()

    def _instrument(self, **_: Any) -> None:
        session.start(os.environ)

    def _uninstrument(self, **_: Any) -> None:
        session.stop()
