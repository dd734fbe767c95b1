"""The open metric row: what `log()` and spans put into it, how it commits, and the window of committed ones."""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from stepmeter.capture.clock import ClockAnchor, monotonic_ns
from stepmeter.capture.open_row import OpenRow, merged
from stepmeter.conventions.rows import Row

if TYPE_CHECKING:
    from stepmeter.capture.span import Span

MAX_PATHS: Final = 10_000
"""Distinct span paths in one row; what comes after counts as `other`."""

MAX_LATE_ROWS: Final = 1_000
WINDOW_ROWS: Final = 4096
OVERFLOW: Final = "other"


class StepScope:
    """A step that the program named, for the spans that start inside it.

    Attributes:
        step: The step.
    """

    __slots__ = ("step",)

    def __init__(self, step: int) -> None:
        self.step = step


class RowBook:
    """The rows of one stream of this process. All methods may be called from any thread.

    Args:
        first_step: Step of the first row.
        anchor: Places commit times on the wall axis.
        encode: Makes plain values of what is logged.
        complain: Says a line once for its key.
        span_count: Whether rows count spans.
        span_metrics: Whether rows add spans up.
        window_rows: Committed rows that are kept.
    """

    def __init__(
        self,
        first_step: int,
        anchor: ClockAnchor,
        encode: Callable[[str, Mapping[Any, Any]], dict[str, Any]],
        complain: Callable[[str, str], None],
        *,
        span_count: bool = False,
        span_metrics: bool = True,
        window_rows: int = WINDOW_ROWS,
    ) -> None:
        self._anchor = anchor
        self._encode = encode
        self._complain = complain
        self._span_count = span_count
        self._span_metrics = span_metrics
        self._open = OpenRow(first_step)
        self._late: dict[int, OpenRow] = {}
        self._lock = threading.Lock()
        self._telling = threading.RLock()  # observers may log
        self._untold: deque[Row] = deque()
        self._window: deque[Row] = deque(maxlen=window_rows)
        self._summary: dict[str, Any] = {}
        self._committed = False
        self._commits = 0
        self._first_step = first_step
        self.observers: list[Callable[[Row], None]] = []

    @property
    def step(self) -> int:
        """Step of the open row."""
        return self._open.step

    @property
    def has_older(self) -> bool:
        """Whether the stream has rows that are not in memory: pushed out, or of a start before this one."""
        return self._first_step > 0 or self._commits > len(self._window)

    @property
    def open_paths(self) -> int:
        """Distinct span paths in the open row."""
        return len(self._open.spans)

    def log(self, data: Mapping[Any, Any], step: Any = None, commit: bool | None = None) -> None:
        """Put values into a row.

        Args:
            data: Values by name.
            step: The row's step; None = the open row.
            commit: Whether the row is complete; None = it is unless `step` is given.
        """
        values = self._encode("value", data)
        if step is not None:
            try:
                step = operator.index(step)
            except TypeError:
                self._complain("step", f"step {step!r} is not a whole number; logged to the open row instead")
                step = None
        commit = step is None if commit is None else commit
        with self._lock:
            row = self._open if step is None else self._opened(step, found_open=True)
            row.log(values)
            if commit or row is not self._open:
                self._commit(row)
        self._tell()

    def open_step(self, step: int) -> None:
        """Open the row of a step, which commits the one that was open.

        Args:
            step: The step.
        """
        with self._lock:
            self._opened(step, found_open=False)
        self._tell()

    def close_step(self, step: int) -> None:
        """Commit the row of a step, if it is the open one.

        Args:
            step: The step.
        """
        with self._lock:
            if self._open.step == step:
                self._commit(self._open)
            self._commit_late()
        self._tell()

    def commit_open(self) -> None:
        """Commit what is open and has something in it; for the end."""
        with self._lock:
            row = self._open
            if row.values or row.spans or row.explicit:
                self._commit(row)
            self._commit_late()
        self._tell()

    def add_span(self, span: Span, scope: StepScope | None) -> None:
        """Add a finished span to the row that it belongs to.

        Args:
            span: The span; its `step` is set.
            scope: The step in which it started, or None = the row that is open now.
        """
        with self._lock:
            row = self._open
            if scope is not None and scope.step != row.step:
                row = self._other(scope.step)
            span.step = row.step
            if not self._span_metrics:
                return
            spans, path = row.spans, span.path
            entry = spans.get(path)
            if entry is None:
                path = self._bounded(path, spans)
                entry = spans.setdefault(path, [0, 0])
            duration_ns = span.end_ns - span.start_ns
            entry[0] += duration_ns
            entry[1] += 1
            if span.metrics:
                row.measured(path, span.metrics, duration_ns)

    def rows(self, *, include_open: bool = True) -> list[Row]:
        """The rows in memory, those of one step merged.

        Args:
            include_open: Whether the open row is among them, as it stands.

        Returns:
            Rows in the order of their steps.
        """
        with self._lock:
            found = list(self._window)
            if include_open and (self._open.values or self._open.spans):
                values = self._open.snapshot(count=self._span_count)
                found.append(Row(self._open.step, self._now_unix_ns(), values))
        return merged(found)

    def summary(self) -> dict[str, Any]:
        """The last value of each metric.

        Returns:
            Values by name.
        """
        with self._lock:
            return dict(self._summary)

    def _opened(self, step: int, *, found_open: bool) -> OpenRow:
        """The row of a step that the program names: the open one, one before it, or a new one."""
        row = self._open
        if step == row.step:
            row.explicit = True
            return row
        if step < row.step and found_open:
            if self._committed or row.explicit:
                return self._other(step)
            row.step, row.explicit = step, True  # a restart from an older checkpoint: what is there is this step's
            return row
        if row.values or row.spans or row.explicit:
            self._commit(row)
        self._open = OpenRow(step, explicit=True)
        return self._open

    def _other(self, step: int) -> OpenRow:
        """A row of another step than the open one's; it commits with the next."""
        if len(self._late) >= MAX_LATE_ROWS and step not in self._late:
            self._commit_late()
        row = self._late.get(step)
        if row is None:  # it goes out whole once more, since readers take the newest row of a step
            before = next((each.values for each in reversed(self._window) if each.step == step), {})
            row = self._late[step] = OpenRow(step, values=dict(before), before=before)
        return row

    def _commit(self, row: OpenRow) -> None:
        values = row.snapshot(count=self._span_count)
        added = None
        if row is not self._open:
            added = {key: value for key, value in values.items() if row.before.get(key) != value}
        committed = Row(row.step, self._now_unix_ns(), values, added)
        self._committed = True
        self._commits += 1
        self._window.append(committed)
        self._untold.append(committed)
        self._summary.update(values if added is None else added)
        if row is self._open:
            self._open = OpenRow(row.step + 1)
            self._commit_late()
        else:
            self._late.pop(row.step, None)

    def _commit_late(self) -> None:
        for row in list(self._late.values()):
            self._commit(row)
        self._late.clear()

    def _bounded(self, path: str, spans: Mapping[str, object]) -> str:
        if len(spans) < MAX_PATHS:
            return path
        self._complain("paths", f"more than {MAX_PATHS} span paths in one row; the rest count as `{OVERFLOW}`")
        around = path.rpartition("/")[0]
        return f"{around}/{OVERFLOW}" if around in spans else OVERFLOW

    def _tell(self) -> None:
        with self._telling:
            while self._untold:
                row = self._untold.popleft()
                for observer in tuple(self.observers):
                    self._tell_one(observer, row)

    def _tell_one(self, observer: Callable[[Row], None], row: Row) -> None:
        try:
            observer(row)
        except Exception as error:  # a row that commits must not fail in what it is told to
            self._complain("observer", f"handling a row failed: {type(error).__name__}: {error}")

    def _now_unix_ns(self) -> int:
        return self._anchor.unix_ns_of(monotonic_ns())
