"""Alerts to a URL: JSON by POST, retried, never in anybody's way."""

from __future__ import annotations

import json
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from stepmeter.errors import UsageError

_WAITING: Final = 1000
_TIMEOUT_S: Final = 10.0
_RETRIES: Final = 3
_RETRYABLE: Final = frozenset({408, 429, 500, 502, 503, 504})
_MAX_WAIT_S: Final = 30.0


class Webhook:
    """Posts alerts to one URL from a thread of its own, which starts with the first.

    Args:
        url: An http or https URL; only its scheme and host are ever shown.
        complain: Says a line once for its key.
        backoff_s: Wait before the first retry; doubled each time.

    Raises:
        UsageError: The URL is none.
    """

    def __init__(self, url: str, complain: Callable[[str, str], None], backoff_s: float = 0.5) -> None:
        self._shown = check_url(url)
        self._url = url
        self._complain = complain
        self._backoff_s = backoff_s
        self._queue: queue.Queue[Mapping[str, Any] | None] = queue.Queue(_WAITING)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def put(self, alert: Mapping[str, Any]) -> None:
        """Queue an alert; a full queue drops and counts it.

        Args:
            alert: Plain values by name.
        """
        try:
            self._queue.put_nowait(alert)
        except queue.Full:
            self._lose(1)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stepmeter-webhook", daemon=True)
            self._thread.start()

    def close(self, limit_s: float) -> None:
        """Send what waits, without further retries, and end the thread.

        Args:
            limit_s: How long to wait at most, in s.
        """
        self._closing.set()
        if self._thread is not None:
            try:
                self._queue.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(limit_s)

    def _run(self) -> None:
        while (alert := self._queue.get()) is not None:
            if not self._deliver(json.dumps(alert, ensure_ascii=False).encode()):
                self._lose(1)

    def _deliver(self, body: bytes) -> bool:
        for attempt in range(_RETRIES + 1):
            wait_s = self._post(body)
            if wait_s is None:
                return True
            if wait_s < 0 or attempt == _RETRIES:
                return False
            if self._closing.wait(min(_MAX_WAIT_S, max(wait_s, self._backoff_s * 2**attempt))):
                return False
        return False

    def _post(self, body: bytes) -> float | None:
        """None when it was taken; else how long it asks to wait in s, or -1 when it is refused for good."""
        request = urllib.request.Request(  # noqa: S310 - the scheme was checked
            self._url, body, {"Content-Type": "application/json", "User-Agent": "stepmeter"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S):  # noqa: S310 - likewise
                return None
        except urllib.error.HTTPError as error:
            error.close()
            return _retry_after_s(error.headers.get("Retry-After")) if error.code in _RETRYABLE else -1.0
        except (OSError, ValueError):
            return 0.0

    def _lose(self, count: int) -> None:
        self.dropped += count
        self._complain("webhook", f"alerts could not be delivered to {self._shown}; the program goes on")


def check_url(url: str) -> str:
    """Make sure that alerts can be posted to a URL.

    Args:
        url: The URL.

    Returns:
        What may be shown of it: its scheme and host.

    Raises:
        UsageError: It is no http or https URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError("alert webhook: expected an http or https URL")
    return f"{parts.scheme}://{parts.hostname}"


def _retry_after_s(header: str | None) -> float:
    try:
        return max(0.0, float(header or 0))
    except ValueError:
        return 0.0
