"""Where finished spans go: into the open row, and through a bounded queue to the drain."""

from __future__ import annotations

import os
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from stepmeter.capture.clock import ClockAnchor, read_anchor
from stepmeter.capture.measuring import Measuring
from stepmeter.capture.printing import Printer
from stepmeter.capture.value import encode_all, plain_size_bytes, size_bytes

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

    from stepmeter.capture.span import Span

MAX_RECORD_BYTES: Final = 8 << 20
MAX_PENDING_BYTES: Final = 64 << 20
_BARE_BYTES: Final = 512  # a span object with its ids and times, measured

Decide = Callable[["SpanContext | None", int, str], bool]
"""(parent's context or None, trace id, name) → whether to sample."""


class SpanSink(Protocol):
    """What adds durations up; the book of rows."""

    def add_span(self, span: Span, scope: Any) -> None:
        """Take a finished span into the row that it belongs to, and set `span.step`."""

    def open_step(self, step: int) -> None:
        """Open the row of a step."""

    def close_step(self, step: int) -> None:
        """Commit the row of a step."""


class SpanRecorder:
    """How this process records spans.

    Attributes:
        recording: Whether finished spans are kept; off until a session switches it on, and in forked children.
        rows: Where durations are added up; None without `init`.
        run_id: Identity of the run; empty before a session.
        keep: Whether spans themselves are kept, and not only their durations.
        queue: Finished spans on their way to the drain.
        dropped: Spans that were lost, by why.
        anchor: Places monotonic times on the wall axis.
        printer: Prints spans that no other handler prints; None for silence.
        plugins: What is measured on spans that bring no plugins of their own.
        decide: Asks the user's sampler; None = everything is sampled.
        random_bits: Makes ids: a whole number of so many random bits.
        on_first: Called once, when the first span has finished; starts the drain.
        warn: Says a line; None = silence.
    """

    def __init__(self, anchor: ClockAnchor | None = None) -> None:
        self.recording = False
        self.rows: SpanSink | None = None
        self.run_id = ""
        self.keep = True
        self.queue: deque[Span] = deque()
        self.dropped: dict[str, int] = {}
        self.anchor = anchor or read_anchor()
        self.printer: Printer | None = None
        self.plugins: Any = ()
        self.decide: Decide | None = None
        # a generator of our own: the program's random numbers stay what they were
        self.random_bits = random.Random().getrandbits  # noqa: S311 - ids, as the SDK makes them
        self.on_first: Callable[[], None] | None = None
        self.warn: Callable[[str], None] | None = None
        self.max_record_bytes: int | None = MAX_RECORD_BYTES
        self.max_pending_bytes: int | None = MAX_PENDING_BYTES
        self.measuring = Measuring(self.complain, self.encode)
        self._pending_bytes = 0  # of attributes and the like; bare spans count by their number
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def record(self, span: Span, scope: object) -> None:
        """Take a finished span; never raises and never waits for anything slow.

        Args:
            span: The span.
            scope: The step scope in which it started, or None.
        """
        try:
            if self.rows is not None:
                self.rows.add_span(span, scope)
            if span.attributes or span.metrics or span.events:
                self._put_described(span)
            elif not self.max_pending_bytes or len(self.queue) * _BARE_BYTES < self.max_pending_bytes:
                self.queue.append(span)
            else:
                self._drop("span: queue full")
            if self.on_first is not None:
                first, self.on_first = self.on_first, None
                first()
        except Exception as error:  # measuring something must not break it
            self.complain("span", f"recording a span failed and goes on without: {type(error).__name__}: {error}")
            self._drop("fault: recording a span")

    def drain(self) -> list[Span]:
        """Take the spans that have finished, oldest first.

        Returns:
            The spans.
        """
        spans = [self.queue.popleft() for _ in range(len(self.queue))]
        freed = sum(_described_bytes(span) for span in spans if span.encoded is not None)
        if freed:
            with self._lock:
                self._pending_bytes -= freed
        return spans

    def encode(self, what: str, values: Mapping[Any, Any]) -> dict[str, Any]:
        """Make plain values; what can't be carried is shortened and named once for each key.

        Args:
            what: Whose values, for the warning.
            values: Values by name.

        Returns:
            Encoded values by name.
        """
        return encode_all(
            values,
            lambda key, error: self.complain(
                f"{what} {key}", f"{what} {key!r} has no form of its own ({error}); kept as its shortened repr"
            ),
        )

    def complain(self, key: str, line: str) -> None:
        """Say a line the first time that its key comes up.

        Args:
            key: What it is about.
            line: The line.
        """
        if key in self._said or len(self._said) > 1000:
            return
        self._said.add(key)
        if self.warn is not None:
            self.warn(line)

    def _put_described(self, span: Span) -> None:
        attributes = span.attributes or {}
        size = plain_size_bytes(attributes)  # most are, and then that is all there is to do
        if size is None or span.metrics or span.events:
            span.encoded = {**self.encode("attribute", attributes), **(span.metrics or {})}
            size = _described_bytes(span)
        else:
            span.encoded = attributes.copy()
        if self.max_record_bytes is not None and size > self.max_record_bytes:
            self._drop("span: larger than max_record_bytes")
            self.complain("large", f"span {span.path!r} of {size} bytes dropped: more than max_record_bytes")
            return
        with self._lock:
            waiting = self._pending_bytes + len(self.queue) * _BARE_BYTES
            fits = self.max_pending_bytes is None or waiting + size <= self.max_pending_bytes
            if fits:
                self._pending_bytes += size
        if fits:
            self.queue.append(span)
        else:
            self._drop("span: queue full")

    def _drop(self, why: str) -> None:
        with self._lock:
            self.dropped[why] = self.dropped.get(why, 0) + 1


def _described_bytes(span: Span) -> int:
    events = sum(size_bytes(dict(event[2])) for event in span.events or ())
    return size_bytes(span.encoded or {}) + events


current = SpanRecorder()
"""The recorder of this process."""


def use(recorder: SpanRecorder) -> None:
    """Make a recorder the one of this process.

    Args:
        recorder: The recorder.
    """
    global current  # noqa: PLW0603 - there is one a process
    current = recorder


def _record_nothing() -> None:
    use(SpanRecorder(current.anchor))  # the old one's locks may be held by threads that are not here


os.register_at_fork(after_in_child=_record_nothing)
