"""`stepmeter.init` to `stepmeter.finish`: the run that a program opens for its own rows and spans."""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from stepmeter.capture import stepping
from stepmeter.capture.identity import restarts
from stepmeter.capture.measuring import Plugin
from stepmeter.capture.printing import Printer
from stepmeter.capture.recording import MAX_PENDING_BYTES, MAX_RECORD_BYTES
from stepmeter.capture.row import WINDOW_ROWS, RowBook
from stepmeter.conventions import environment
from stepmeter.conventions.rows import Row
from stepmeter.errors import UsageError
from stepmeter.runtime import session as sessions
from stepmeter.runtime.cursor import Cursor
from stepmeter.runtime.open_run import FLUSH_LIMIT_S, Run
from stepmeter.runtime.opening import LEFT_IN_ENVIRON, begin_session, choose_place

if TYPE_CHECKING:
    from stepmeter.alerts.rule import Rule
    from stepmeter.runtime.session import Session

_run: Run | None = None


def init(
    project: str | None = None,
    name: str | None = None,
    *,
    dir: str | os.PathLike[str] | None = None,  # noqa: A002 - the name that users of trackers know
    stream: str | None = None,
    resume: str = "allow",
    spans: bool = True,
    span_metrics: bool = True,
    span_count: bool = False,
    span_print_fn: Callable[[str], Any] | None = None,
    span_plugins: Sequence[Plugin | Callable[..., Any]] = (),
    alert_rules: Sequence[Any] = (),
    alert_webhook: str | None = None,
    alert_window: int = WINDOW_ROWS,
    max_buffer_seconds: float | None = 1.0,
    max_record_bytes: int | None = MAX_RECORD_BYTES,
    max_pending_bytes: int | None = MAX_PENDING_BYTES,
) -> Run:
    """Open a run for the program's own rows and spans.

    Args:
        project: What the run belongs to.
        name: Its name; a run of that name in the directory is resumed. None = the run's id.
        dir: Directory of runs; `$STEPMETER_DIR`, else `./stepmeter-runs`, when None.
        stream: Which of several writers of the run this is, such as `data`; None for the default one.
        resume: `allow`, `must` (there has to be such a run) or `never`.
        spans: Whether spans are kept one by one.
        span_metrics: Whether rows add up spans.
        span_count: Whether rows count spans.
        span_print_fn: Called with a line at the start and end of each span.
        span_plugins: What is measured on every span.
        alert_rules: Rules as text, `EXPR => LEVEL: MESSAGE`, or as mappings.
        alert_webhook: URL that takes a JSON POST for each alert.
        alert_window: Committed rows that are kept for `history` and rules.
        max_buffer_seconds: How long a completed span waits before it is sent; None = until a flush.
        max_record_bytes: A larger span is dropped and counted, its duration kept; None = no limit.
        max_pending_bytes: What may wait; None = no limit.

    Returns:
        The run.

    Raises:
        UsageError: A run is open, the stream is another process's, an argument is wrong, or a rule is; a rule's
            message points at the column.
    """
    if _run is not None and _run.session.pid == os.getpid():
        raise UsageError(f"run {_run.name!r} is open in this process; call stepmeter.finish() before another init()")
    rules = _parsed(alert_rules, alert_webhook)
    environ_before = {each: os.environ.get(each) for each in LEFT_IN_ENVIRON}
    place = choose_place(os.environ, project, name, dir, stream)
    cursor = Cursor.open(place, resume)
    os.environ.setdefault(environment.ATTEMPT, str(cursor.attempt - restarts(os.environ)))
    session, owns_session = begin_session(place)
    recorder, outbox = session.outbox.spans, session.outbox
    counting = {"span_count": span_count, "span_metrics": span_metrics}
    book = RowBook(
        cursor.first_step, recorder.anchor, recorder.encode, recorder.complain, window_rows=alert_window, **counting
    )
    recorder.keep, recorder.plugins, recorder.printer = spans, tuple(span_plugins), Printer.of(span_print_fn, 0)
    recorder.max_record_bytes, recorder.max_pending_bytes = max_record_bytes, max_pending_bytes
    outbox.interval_s, outbox.on_rows = max_buffer_seconds, cursor.reached
    outbox.common = place.common(cursor.attempt)
    run = Run(place, session, book, cursor, owns_session=owns_session)
    run.environ_before = environ_before if owns_session else {}
    _begin(run, rules, alert_webhook)
    return run


def _begin(run: Run, rules: Sequence[Rule], alert_webhook: str | None) -> None:
    """Let rows and spans come, now that whatever can go wrong has gone well."""
    global _run  # noqa: PLW0603 - there is one run a process
    session, recorder = run.session, run.session.outbox.spans
    run.book.observers.append(lambda row: _hand_on(session, row))
    if rules:
        from stepmeter.runtime.alerting import attach_alerts

        run.alerts = attach_alerts(run, rules, alert_webhook)
    recorder.rows = run.book
    if recorder.on_first is not None:
        recorder.on_first()  # now, and not inside the first span
    _run = run
    atexit.register(run.finish)
    _finish_on_sigterm()


def get_run() -> Run | None:
    """The run that is open in this process.

    Returns:
        The run; None before `init`, after `finish`, and in a forked child.
    """
    return _run if _run is not None and _run.session.pid == os.getpid() else None


def finish() -> None:
    """Commit the open row, send what waits, and close the run; harmless without one."""
    global _run
    run, _run = get_run(), None
    if run is not None:
        run.finish()
        atexit.unregister(run.finish)


def log(data: Mapping[Any, Any] | None = None, step: Any = None, commit: bool | None = None) -> None:
    """Put values into the row of a step; does nothing without a run.

    Inside `with stepmeter.step(n)` the values belong to step n, whose row commits at the end of the block.

    Args:
        data: Values by name; anything that has a plain form.
        step: The row's step; None = the open row. A row that was committed is added to.
        commit: Whether the row is complete; None = it is unless `step` is given.
    """
    run = get_run()
    if run is None:
        return
    if step is None:
        step = stepping.scoped_step()
    try:
        run.book.log(data if isinstance(data, Mapping) else {}, step, commit)
    except Exception as error:  # a log must not break what it logs
        run.session.outbox.spans.complain("log", f"log() failed and goes on without: {type(error).__name__}: {error}")


def history(
    n: int | None = 50,
    *,
    metrics: Sequence[str] | None = None,
    step_range: tuple[int | None, int | None] | None = None,
    stream: str | None = None,
    include_open: bool = True,
) -> list[dict[str, Any]]:
    """The newest rows of the run that is open.

    Args:
        n: How many; None or -1 = all that are in memory.
        metrics: Names to keep; rows without any of them are left out.
        step_range: (first, end): steps from `first` on and below `end`; either may be None.
        stream: Another stream of the run, from the lines in its directory.
        include_open: Whether the open row is among them, as it stands.

    Returns:
        One mapping a step, in the order of steps: `_step`, `_time` (Unix time in s) and the values; none without a run.
    """
    run = get_run()
    if run is None:
        return []
    return run.history(n, metrics=metrics, step_range=step_range, stream=stream, include_open=include_open)


def summary() -> dict[str, Any]:
    """The last committed value of each metric.

    Returns:
        Values by name; empty without a run.
    """
    run = get_run()
    return {} if run is None else run.book.summary()


def flush(limit_s: float = FLUSH_LIMIT_S) -> bool:
    """Send completed spans and committed rows, and wait for it.

    Args:
        limit_s: How long to wait at most, in s.

    Returns:
        Whether all of it was taken; True where there is nothing to send.
    """
    session = sessions.current_session()
    return True if session is None else session.flush(limit_s)


def _hand_on(session: Session, row: Row) -> None:
    session.outbox.rows.put(row)
    recorder = session.outbox.spans
    if recorder.on_first is not None:
        recorder.on_first()


def _parsed(alert_rules: Sequence[Any], alert_webhook: str | None) -> list[Rule]:
    """Everything about alerts that may be wrong is said before anything is opened."""
    if not alert_rules:
        return []
    from stepmeter.alerts.rule import parse_rule
    from stepmeter.alerts.webhook import check_url

    if alert_webhook is not None:
        check_url(alert_webhook)
    return [parse_rule(rule) for rule in alert_rules]


def _finish_on_sigterm() -> None:
    """Python ends at SIGTERM without its exit hooks; where the program has no handler, finish first."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    session = sessions.current_session()
    finish()
    if session is not None:
        session.end()
    os.kill(os.getpid(), number)
