import asyncio
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.request import Request, urlopen

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.recorded import by_path

from stepmeter import span, start_span


@pytest.fixture
def others():
    """Another library's tracer, and what it exported."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider.get_tracer("another.library"), exporter
    provider.shutdown()


def test_other_libraries_spans_are_children(recorder, others):
    """A span that another instrumentation starts inside ours is its child, in the same trace."""
    tracer, exporter = others
    with span("request"), tracer.start_as_current_span("SELECT"):
        pass

    (theirs,) = exporter.get_finished_spans()
    ours = by_path(recorder)["request"]
    assert (theirs.parent.span_id, theirs.context.trace_id) == (ours.span_id, ours.trace_id)


def test_it_is_a_child_of_whatever_span_is_current(recorder, others):
    """Between two spans of ours another library's span is the parent in the trace, and the path still joins ours."""
    tracer, _ = others
    with tracer.start_as_current_span("GET") as server, span("a"), tracer.start_as_current_span("query") as query:  # noqa: SIM117 - one line would be too long
        with span("b"):
            pass

    spans = by_path(recorder)
    assert spans["a"].parent_id == server.get_span_context().span_id
    assert spans["a/b"].parent_id == query.get_span_context().span_id
    assert spans["a/b"].trace_id == server.get_span_context().trace_id


def test_spans_of_one_tree_share_a_trace_and_trees_do_not(recorder):
    """A root begins a trace; ids are never zero and never the same."""
    for _ in range(2):
        with span("a"), span("b"):
            pass

    spans = list(recorder.queue)
    assert spans[0].trace_id == spans[1].trace_id != spans[2].trace_id
    assert spans[0].parent_id == spans[1].span_id
    assert len({each.span_id for each in spans} - {0}) == 4


def test_context_goes_over_http(recorder):
    """A request made inside a span carries it as `traceparent`, and the server's span is its child."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            token = context.attach(extract(self.headers))
            with span("handle"):
                pass
            context.detach(token)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.handle_request)
    thread.start()
    with span("call"):
        headers = {}
        inject(headers)
        with urlopen(Request(f"http://127.0.0.1:{server.server_address[1]}/", headers=headers), timeout=10):
            pass
    thread.join()
    server.server_close()

    spans = by_path(recorder)
    assert (spans["handle"].parent_id, spans["handle"].trace_id) == (spans["call"].span_id, spans["call"].trace_id)


def test_baggage_and_the_rest_of_the_context_pass(recorder):
    """What others put into the context is there inside a span, and their context is back after it."""
    token = context.attach(baggage.set_baggage("user", "u1"))
    before = context.get_current()
    with span("a"):
        assert baggage.get_baggage("user") == "u1"
    assert context.get_current() is before
    context.detach(token)


def test_an_ended_span_is_nobodys_parent(recorder, others):
    """Another library's span started where a span of ours was ended from elsewhere joins what is still open around."""
    tracer, exporter = others
    with span("outer") as outer:
        inner = start_span("inner")
        thread = Thread(target=inner.end)
        thread.start()
        thread.join()
        tracer.start_span("late").end()

    (late,) = exporter.get_finished_spans()
    assert late.parent.span_id == outer.span_id


def test_an_unsampled_parent_is_followed(recorder):
    """Inside a trace that is not sampled, spans are timed and marked as not sampled."""
    remote = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(0))
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(remote)))
    with span("a") as a:
        pass
    context.detach(token)

    assert (a.sampled, a.trace_id, a.parent_id) == (False, 1, 2)


def test_the_interface_of_an_opentelemetry_span_works(recorder):
    """Whoever gets it by `trace.get_current_span()` can set attributes, status, events and exceptions."""
    with span("a") as a:
        current = trace.get_current_span()
        current.set_attribute("k", 1)
        current.add_event("cached", {"hit": True})
        current.set_status(trace.Status(trace.StatusCode.ERROR, "half"))
        current.record_exception(ValueError("v"))
        assert current.is_recording()

    assert current is a
    assert a.encoded == {"k": 1}
    assert a.status == ("ERROR", "half")
    assert [event[0] for event in a.events] == ["cached", "exception"]
    assert not a.is_recording()


def test_the_programs_random_numbers_stay_what_they_were(recorder):
    """Ids come from a generator of their own."""
    import random

    random.seed(1)
    expected = random.random()
    random.seed(1)
    with span("a"):
        pass

    assert random.random() == expected


def test_durations_and_nesting_do_not_follow_the_wall_clock(recorder, monkeypatch):
    """A wall clock that jumps back by an hour leaves children inside their parents."""
    import time

    with span("outer"), span("inner"):
        monkeypatch.setattr(time, "time_ns", lambda: 0)
        monkeypatch.setattr(time, "time", lambda: 0.0)

    inner, outer = recorder.queue
    assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_a_forked_child_records_nothing_and_hangs_on_nothing(recorder):
    """A child that forks while the recorder's lock is held goes on, records nothing, and its spans still time."""
    import os

    with recorder._lock, span("parent"):
        pid = os.fork()
        if pid == 0:
            with span("child", x=1) as child:
                pass
            os._exit(0 if child.duration_ms > 0 and not recorder.queue else 1)
        _, status = os.waitpid(pid, 0)

    assert os.waitstatus_to_exitcode(status) == 0


def test_concurrent_tasks_keep_their_own_traces(recorder):
    """Roots in concurrent tasks are traces of their own."""

    async def work():
        async with span("task"):
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(work(), work())

    asyncio.run(main())

    assert len({each.trace_id for each in recorder.queue}) == 2


def test_requests_of_the_requests_instrumentation_are_children(recorder, others):
    """OpenTelemetry's own instrumentation of `requests` puts its spans under ours, and the server's under its own.

    It is no development package, since `stepmeter run` would load it and `requests` into every program that is timed.
    """
    module = pytest.importorskip("opentelemetry.instrumentation.requests")
    import requests

    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.headers["traceparent"])
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    _, exporter = others
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = module.RequestsInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.handle_request)
    thread.start()
    try:
        with span("load") as load:
            requests.get(f"http://127.0.0.1:{server.server_address[1]}/", timeout=10)
    finally:
        instrumentor.uninstrument()
        thread.join()
        server.server_close()

    (theirs,) = exporter.get_finished_spans()
    assert (theirs.context.trace_id, theirs.parent.span_id) == (load.trace_id, load.span_id)
    assert seen[0].split("-")[1:3] == [f"{load.trace_id:032x}", f"{theirs.context.span_id:016x}"]
