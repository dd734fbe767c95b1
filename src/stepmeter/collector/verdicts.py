"""What a processor says of a request that it does not take."""

from __future__ import annotations

from typing import ClassVar


class UnavailableError(Exception):
    """The request can't be made durable now; the sender should send it again."""

    retry_after_s: ClassVar[int] = 1


class RefusedError(Exception):
    """The request's run takes no more telemetry; the sender must not send it again."""
