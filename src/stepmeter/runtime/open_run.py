"""A run that is open in this process, and its history."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stepmeter.capture.open_row import merged
from stepmeter.capture.row import RowBook
from stepmeter.conventions.rows import Row
from stepmeter.runtime import session as sessions
from stepmeter.runtime.cursor import Cursor
from stepmeter.runtime.opening import Place

if TYPE_CHECKING:
    from stepmeter.runtime.alerting import Alerts
    from stepmeter.runtime.session import Session

FLUSH_LIMIT_S = 10.0
_FINISH_LIMIT_S = 1.3


class History:
    """The rows of a run as they are in memory; call it for rows.

    Args:
        run: Whose rows.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(
        self,
        n: int | None = 50,
        *,
        metrics: Sequence[str] | None = None,
        step_range: tuple[int | None, int | None] | None = None,
        stream: str | None = None,
        include_open: bool = True,
    ) -> list[dict[str, Any]]:
        """See `stepmeter.history`."""
        low, high = step_range or (None, None)
        newest = None if n is None or n < 0 or metrics is not None else n
        rows = self._run.rows_of(stream, (low, high), newest, include_open=include_open)
        rows = [row for row in rows if (low is None or row.step >= low) and (high is None or row.step < high)]
        found = [_as_dict(row, metrics) for row in rows]
        if metrics is not None:
            found = [row for row in found if len(row) > 2]
        return found if n is None or n < 0 else found[len(found) - min(n, len(found)) :]

    def flush(self, limit_s: float = FLUSH_LIMIT_S) -> bool:
        """Send completed spans and committed rows, without committing the open row, and wait for it.

        Args:
            limit_s: How long to wait at most, in s.

        Returns:
            Whether all of it was taken.
        """
        return self._run.session.flush(limit_s)


class Run:
    """A run that is open in this process.

    Attributes:
        project: Its project, or None.
        name: Its name; the name of its directory.
        id: Its identity, the same for all its processes and attempts.
        stream: Its stream; None for the default one.
        attempt: Which start of the run this is, from 0.
        directory: The run directory.
        book: Its rows.
        history: Its rows for the program.
        session: The process's session.
        alerts: Evaluates its rules; None without rules.
        environ_before: What `finish` puts back into the environment.
    """

    def __init__(self, place: Place, session: Session, book: RowBook, cursor: Cursor, *, owns_session: bool) -> None:
        self.project, self.name, self.id = place.project, place.name, place.run_id
        self.stream, self.directory = place.stream, place.directory
        self.attempt = cursor.attempt
        self.book = book
        self.history = History(self)
        self.session = session
        self.alerts: Alerts | None = None
        self.environ_before: Mapping[str, str | None] = {}
        self._cursor = cursor
        self._rank = place.rank
        self._owns_session = owns_session
        self._closed = threading.Event()

    def rows_of(
        self, stream: str | None, steps: tuple[int | None, int | None], newest: int | None, *, include_open: bool
    ) -> list[Row]:
        """The rows of a stream: this one's from memory as far as they are there, all others as they were written.

        Args:
            stream: The stream; None = this one.
            steps: (first, end) of the steps that matter; either may be None.
            newest: How many of the newest steps matter; None for all.
            include_open: Whether the open row is among them.

        Returns:
            Rows in the order of their steps, at least those that matter.
        """
        from stepmeter.runtime.older_rows import Wanted, older_rows

        if stream is not None and stream != (self.stream or "default"):
            name = None if stream == "default" else stream
            return older_rows(self.directory, self.id, Wanted(name, None, steps, newest)) or []
        rows = self.book.rows(include_open=include_open)
        first = rows[0].step if rows else self.book.step
        enough = newest is not None and len([row for row in rows if steps[1] is None or row.step < steps[1]]) >= newest
        if enough or not self.book.has_older or (steps[0] is not None and steps[0] >= first):
            return rows
        older = older_rows(self.directory, self.id, Wanted(self.stream, self._rank, steps, newest))
        if older is None:
            kept = (
                f"history has the newest {len(rows)} rows, which are in memory; the older ones are with the collector"
            )
            self.session.outbox.spans.complain("history", kept)
            return rows
        return merged([*older, *rows])

    def finish(self) -> None:
        """Commit the open row, send what waits, and end what `init` began; a second time changes nothing."""
        if self._closed.is_set() or self.session.pid != os.getpid():
            return
        self._closed.set()
        self.book.commit_open()
        spans, outbox = self.session.outbox.spans, self.session.outbox
        for plugin in spans.plugins:
            _close(plugin, spans.complain)
        spans.rows, spans.printer, spans.plugins = None, None, ()
        if self.alerts is not None:
            self.alerts.close(_FINISH_LIMIT_S)
        for why, count in spans.dropped.items():
            spans.complain(f"dropped {why}", f"{count} dropped ({why}); their durations are in the rows")
        if self._owns_session:
            sessions.stop()
            _restore(self.environ_before)
        else:
            self.session.flush(_FINISH_LIMIT_S)
            spans.keep = True
        outbox.on_rows = None
        self._cursor.close(self.book.step)


def _close(plugin: object, complain: Callable[[str, str], None]) -> None:
    close = getattr(plugin, "close", None)
    if close is not None:
        try:
            close()
        except Exception as error:  # the user's plugin
            complain("plugin close", f"closing a plugin failed: {type(error).__name__}: {error}")


def _restore(environ: Mapping[str, str | None]) -> None:
    for name, value in environ.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _as_dict(row: Row, metrics: Sequence[str] | None) -> dict[str, Any]:
    values = row.values if metrics is None else {key: row.values[key] for key in metrics if key in row.values}
    return {"_step": row.step, "_time": row.time_ns / 1e9, **values}
