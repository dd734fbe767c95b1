"""A recorder of spans for one test, and what it recorded."""

from __future__ import annotations

from contextlib import contextmanager

from stepmeter.capture import recording
from stepmeter.capture.row import RowBook


@contextmanager
def recorded_spans(**book_options):
    """Record spans into a queue and a book of rows; gives (recorder, book)."""
    before = recording.current
    recorder = recording.SpanRecorder()
    said = []
    recorder.recording, recorder.warn = True, said.append
    recorder.said = said
    book = RowBook(0, recorder.anchor, recorder.encode, recorder.complain, **book_options)
    recorder.rows = book
    recording.use(recorder)
    try:
        yield recorder, book
    finally:
        recording.use(before)


def by_path(recorder):
    """The spans that finished, by path."""
    return {span.path: span for span in recorder.queue}
