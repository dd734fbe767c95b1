"""The thread that reads all samplers once a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from stepmeter.capture.channel import Channel
from stepmeter.capture.clock import monotonic_ns
from stepmeter.capture.reading import Reading

INTERVAL_S = 1.0


class Sampler(Protocol):
    """Something that can be read."""

    def read(self, at_ns: int) -> list[Reading]:
        """Read once; may raise, and is then read again the next time."""


class Sampling:
    """Reads samplers into a channel.

    Args:
        makers: Make the samplers, on the thread; one that raises has nothing to read here.
        channel: Where readings go.
        on_fault: Told of what raises, by a name and the error.
        interval_s: Time between readings, in s.
    """

    def __init__(
        self,
        makers: Iterable[Callable[[], Sampler]],
        channel: Channel[Reading],
        on_fault: Callable[[str, BaseException], None],
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._makers = tuple(makers)
        self._channel = channel
        self._on_fault = on_fault
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stepmeter-sample", daemon=True)
        self.cpu_time_s = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end; does not wait for a reading under way."""
        self._stop.set()

    def _run(self) -> None:
        samplers = [sampler for make in self._makers if (sampler := _made(make)) is not None]
        while samplers:
            for sampler in samplers:
                self._read(sampler)
            self.cpu_time_s = time.thread_time()
            if self._stop.wait(self._interval_s):
                return

    def _read(self, sampler: Sampler) -> None:
        try:
            for reading in sampler.read(monotonic_ns()):
                self._channel.put(reading)
        except Exception as error:  # a sampler's failure is counted and never ends the others
            self._on_fault(type(sampler).__name__, error)


def _made(make: Callable[[], Sampler]) -> Sampler | None:
    try:
        return make()
    except Exception:  # no driver, no permission, no psutil: absent, not a fault; `stepmeter doctor` says why
        return None
