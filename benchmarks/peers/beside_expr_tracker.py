"""User spans of stepmeter, expr_tracker and OpenTelemetry's SDK, in one process and in turn; prints one JSON object.

Runs in expr_tracker's environment, with ours appended to the path.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

import stepmeter

SPANS = 1000
ROUNDS = 15
UNIQUE = 10_000
DRAINED = 20_000


class Nowhere(SpanExporter):
    """Takes spans and does nothing with them."""

    def export(self, spans):  # noqa: ARG002 - the SDK's signature
        """Say that they arrived."""
        return SpanExportResult.SUCCESS


class Ours:
    """stepmeter with OpenTelemetry context, rows, histogram and lines of OTLP JSON."""

    def __init__(self, directory, **options):
        self.run = stepmeter.init("bench", dir=directory, **options)
        self.span, self.start = stepmeter.span, stepmeter.start_span

    def flush(self):
        """Wait until everything is written."""
        self.run.history.flush(60)

    close = staticmethod(stepmeter.finish)


class Theirs:
    """expr_tracker with its defaults: file on, asynchronous, metrics on."""

    def __init__(self, directory, **options):
        import expr_tracker

        self.tracker = expr_tracker
        self.run = expr_tracker.init(project="bench", dir=directory, backends=(), **options)
        self.span, self.start = expr_tracker.span, expr_tracker.start_span

    def flush(self):
        """Wait until everything is written."""
        self.run.history.flush()

    def close(self):
        """End it."""
        self.tracker.finish()


class Sdk:
    """OpenTelemetry's SDK with a batch processor."""

    def __init__(self, directory, **options):  # noqa: ARG002 - like the others
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=200_000))
        self.tracer = self.provider.get_tracer("bench")

    def span(self, name, **attributes):
        """As the others' `span`."""
        return self.tracer.start_as_current_span(name, attributes=attributes or None)

    def start(self, name):
        """As the others' `start_span`."""
        return self.tracer.start_span(name)

    def flush(self):
        """Wait until everything is exported."""
        self.provider.force_flush()

    def close(self):
        """End it."""
        self.provider.shutdown()


def bare(kind):
    """A span alone."""
    for _ in range(SPANS):
        with kind.span("forward"):
            pass


def nested(kind):
    """A span in a span."""
    for _ in range(SPANS // 2):
        with kind.span("outer"), kind.span("inner"):
            pass


def attributes(kind):
    """A span with four attributes."""
    for _ in range(SPANS):
        with kind.span("load", rows=3, share=0.5, source="disk", cached=True):
            pass


def by_hand(kind):
    """Started and ended by hand."""
    for _ in range(SPANS):
        kind.start("epoch").end()


FORMS = (bare, nested, attributes, by_hand)


def producer_us(kinds):
    """Median µs of producer CPU a span, by form and kind."""
    found = {form.__name__: {name: [] for name in kinds} for form in FORMS}
    gc.disable()
    for _ in range(ROUNDS):
        for form in FORMS:
            for name, kind in kinds.items():
                start_ns = time.thread_time_ns()
                form(kind)
                found[form.__name__][name].append((time.thread_time_ns() - start_ns) / SPANS / 1e3)
        for kind in kinds.values():
            kind.flush()
    gc.enable()
    return {form: {name: statistics.median(each) for name, each in of.items()} for form, of in found.items()}


def threads_us(kind, count):
    """µs of process CPU a span, made by so many threads."""
    kind.flush()
    threads = [threading.Thread(target=bare, args=(kind,)) for _ in range(count)]
    start_ns = time.process_time_ns()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.process_time_ns() - start_ns) / SPANS / count / 1e3


def drained(kind):
    """Spans a second until all are written, and µs of process CPU a span."""
    kind.flush()
    start_s, cpu_s = time.perf_counter(), time.process_time()
    for _ in range(DRAINED):
        with kind.span("forward"):
            pass
    kind.flush()
    return DRAINED / (time.perf_counter() - start_s), (time.process_time() - cpu_s) / DRAINED * 1e6


def retained_kib(make, options):
    """KiB kept after 10,000 spans of distinct names have been written."""
    with tempfile.TemporaryDirectory() as directory:
        kind = make(directory, **options)
        with kind.span("warm"):
            pass
        kind.flush()
        tracemalloc.start()
        for number in range(UNIQUE):
            with kind.span(f"request {number}"):
                pass
        kind.flush()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        kind.close()
    return kept / 1024


def their_trace_us(directory):
    """µs of CPU a span that expr_tracker's export takes."""
    from expr_tracker.trace import write_trace

    (spans,) = Path(directory).rglob("spans.jsonl")
    start_s = time.process_time()
    count = write_trace(str(spans.parent), str(spans.with_name("trace.json")))
    return (time.process_time() - start_s) / count * 1e6


def main():
    """Measure and print."""
    with tempfile.TemporaryDirectory() as ours, tempfile.TemporaryDirectory() as theirs:
        kinds = {"stepmeter": Ours(ours), "expr_tracker": Theirs(theirs), "sdk": Sdk("")}
        found = {"producer_us": producer_us(kinds)}
        found["threads_us"] = {name: {n: threads_us(kind, n) for n in (1, 2, 4, 8)} for name, kind in kinds.items()}
        found["drained"] = {name: drained(kind) for name, kind in kinds.items()}
        lost = dict(stepmeter.get_run().session.outbox.spans.dropped)
        for kind in kinds.values():
            kind.close()
        found["trace_us"] = their_trace_us(theirs)
    unique = {"span_metrics": False}
    found["retained_kib"] = {
        "stepmeter": retained_kib(Ours, {}),
        "stepmeter, span_metrics=False": retained_kib(Ours, unique),
        "expr_tracker": retained_kib(Theirs, {}),
        "sdk": retained_kib(Sdk, {}),
    }
    found["lost"] = lost
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
