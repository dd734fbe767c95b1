"""Tests of what senders may do to a collector: nonsense, floods, bombs, crashes in the middle."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import grpc
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
from tests.support.otlp import JSON, collector_process, logs, metrics, post, span, step_span, traces, wait_until
from tests.support.processes import PROGRAMS

from stepmeter.collector.config import CollectorConfig, Endpoint
from stepmeter.collector.decode import Rows, RunKey
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import LOGS, METRICS, TRACES, Encoding, MalformedError, parse
from stepmeter.collector.server import Collector
from stepmeter.collector.signals import CONTENTS, read
from stepmeter.store.arrow import to_arrow
from stepmeter.store.reader import find_run, open_run

RUN = RunKey("run-1")


def _whole():
    """One valid request of each signal, with something of everything."""
    event = span("x", attributes={"a": 1, "b": 1.5, "c": "t", "d": True, "e": b"\x00"})
    event.events.add(name="e", time_unix_nano=1)
    request, found = metrics()
    found.add(name="g").gauge.data_points.add(as_double=1.0)
    found.add(name="h").histogram.data_points.add(count=1, bucket_counts=[1])
    found.add(name="hw.power").gauge.data_points.add(as_int=1)
    return {TRACES: traces(step_span(1), event), METRICS: request, LOGS: logs("hello", severity_number=9)}


WHOLE = {signal: request.SerializeToString() for signal, request in _whole().items()}


def digest(kind, encoding, body):
    """Take a body as far as Arrow; what is malformed ends in the one error that says so."""
    try:
        message = parse(kind, encoding, body)
    except MalformedError:
        return
    content = CONTENTS[kind]
    rejected, reason = content.reject(message)
    assert bool(rejected) == bool(reason)
    rows = Rows()
    content.decode(read(Record(kind, encoding, body)), RUN, rows)
    for (_, table), found in rows.tables.items():
        assert to_arrow(table, found).num_rows == len(found)


@given(st.sampled_from([TRACES, METRICS, LOGS]), st.binary(max_size=400))
@settings(max_examples=150, deadline=None)
def test_random_bytes_are_rows_or_malformed(kind, body):
    """Whatever the bytes, they become rows that the store can hold, or are malformed; nothing else happens."""
    digest(kind, Encoding.PROTOBUF, body)


@given(st.sampled_from([TRACES, METRICS, LOGS]), st.data())
@settings(max_examples=300, deadline=None)
def test_damaged_requests_are_rows_or_malformed(kind, data):
    """A request that was cut short, or in which bytes were changed, becomes rows or is malformed."""
    body = bytearray(WHOLE[kind])
    for _ in range(data.draw(st.integers(0, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    digest(kind, Encoding.PROTOBUF, bytes(body[: data.draw(st.integers(0, len(body)))]))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "spanId", "attributes", "key", "value",
                         "intValue", "stringValue", "startTimeUnixNano", "kind", "resourceMetrics", "scopeMetrics",
                         "metrics", "gauge", "dataPoints", "asDouble", "resourceLogs", "scopeLogs", "logRecords"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.sampled_from([TRACES, METRICS, LOGS]), JSON_VALUES)
@settings(max_examples=300, deadline=None)
def test_any_json_is_rows_or_malformed(kind, value):
    """Whatever the JSON, it becomes rows or is malformed, also where values are of a wrong type or size."""
    digest(kind, Encoding.JSON, json.dumps(value).encode())


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="Atheris has wheels for some versions of Python only")
def test_a_fuzzer_that_watches_the_code_finds_no_crash(tmp_path):
    """Atheris, led by which lines a body reaches, finds none in 20 s that is neither rows nor malformed."""
    for number, (kind, body) in enumerate(WHOLE.items()):
        (tmp_path / f"protobuf-{kind.name}").write_bytes(bytes((number,)) + body)
        as_json = json_format.MessageToJson(kind.request.FromString(body), indent=None).encode()
        (tmp_path / f"json-{kind.name}").write_bytes(bytes((number + 3,)) + as_json)
    fuzzed = subprocess.run(
        [sys.executable, PROGRAMS / "fuzz_requests.py", tmp_path, "-max_total_time=20", "-timeout=10"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert fuzzed.returncode == 0, fuzzed.stderr[-3000:]
    assert "Done " in fuzzed.stderr


@pytest.fixture
def collector(tmp_path):
    """A collector in this process, on free ports, with a limit of 1 MB."""
    endpoint = Endpoint("127.0.0.1", 0, 1_000_000)
    running = Collector(CollectorConfig(endpoint, endpoint, tmp_path), RUN)
    running.start()
    yield running
    running.close()


def test_nonsense_over_the_wire_is_answered(collector):
    """Random bytes, also as gzip and JSON, are answered with 200 or 400, and the collector goes on."""
    noise = random.Random(1)
    for number in range(60):
        body = noise.randbytes(noise.randrange(200))
        options = ({}, {"Content_Encoding": "gzip"}, {"Content_Type": JSON})[number % 3]
        assert post(collector.ready.http, body, **options).status in {200, 400}
    assert post(collector.ready.http, WHOLE[TRACES]).status == 200


def test_a_bomb_is_refused_without_its_size_in_memory(collector):
    """A small body that unpacks to more than the limit is 413 or RESOURCE_EXHAUSTED, also when packed twice."""
    bomb = gzip.compress(b"\x00" * 200_000_000)
    assert len(bomb) < 1_000_000
    assert post(collector.ready.http, bomb, Content_Encoding="gzip").status == 413
    assert post(collector.ready.http, gzip.compress(bomb), Content_Encoding="gzip").status in {400, 413}
    with grpc.insecure_channel(collector.ready.grpc) as channel:
        send = channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export", None, None)
        with pytest.raises(grpc.RpcError) as caught:
            send(b"\x00" * 50_000_000, compression=grpc.Compression.Gzip)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_slow_disk_slows_senders_and_loses_nothing(collector, monkeypatch):
    """When each sync takes long, requests share syncs, and each is acknowledged or asked to come again."""
    real = os.fdatasync
    syncs = []

    def slow(descriptor):
        syncs.append(descriptor)
        time.sleep(0.05)
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    with ThreadPoolExecutor(20) as pool:
        bodies = [traces(step_span(step)).SerializeToString() for step in range(1, 101)]
        statuses = list(pool.map(lambda body: post(collector.ready.http, body).status, bodies))
    assert set(statuses) == {200}
    assert len(syncs) < 60


def stored(directory, sql):
    with open_run(find_run("run-1", directory)) as reader:
        return reader.snapshot().rows(sql)


@pytest.mark.slow
def test_ten_thousand_concurrent_small_requests(tmp_path):
    """Ten thousand requests of one span from 200 senders over both protocols are all stored, once each."""
    with collector_process(tmp_path, "--run", "run-1") as running, grpc.insecure_channel(running.grpc) as channel:
        stub = TraceServiceStub(channel)

        def send(step):
            request = traces(step_span(step))
            if step % 2:
                stub.Export(request, timeout=120)
            else:
                assert post(running.http, request.SerializeToString()).status == 200

        with ThreadPoolExecutor(200) as pool:
            list(pool.map(send, range(1, 10_001)))
        assert running.stop()[0] == 0
    assert stored(tmp_path, "SELECT count(*), count(DISTINCT step) FROM raw.steps") == [(10_000, 10_000)]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_collector_killed_a_hundred_times_loses_and_doubles_nothing(tmp_path):
    """Killed at random moments under load a hundred times: no acknowledged step is lost, and none is there twice."""
    acknowledged, lock, noise = set(), threading.Lock(), random.Random(7)

    def send(address, sender, life, end):
        step = 0
        while not end.is_set():
            step += 1
            number = (life * 8 + sender) * 100_000 + step
            with contextlib.suppress(OSError):
                if post(address, traces(step_span(number)).SerializeToString()).status == 200:
                    with lock:
                        acknowledged.add(number)

    for life in range(100):
        with collector_process(tmp_path, "--run", "run-1") as running:
            end = threading.Event()
            senders = [threading.Thread(target=send, args=(running.http, n, life, end)) for n in range(4)]
            before = len(acknowledged)
            for sender in senders:
                sender.start()
            if life % 5:  # each fifth may die before it has begun
                wait_until(lambda: len(acknowledged) > before, 60)  # noqa: B023 - within this life
            time.sleep(noise.uniform(0.02, 0.8))
            running.process.send_signal(signal.SIGKILL)
            end.set()
            for sender in senders:
                sender.join()
    with collector_process(tmp_path, "--run", "run-1") as running:
        assert running.stop()[0] == 0
    found = [step for (step,) in stored(tmp_path, "SELECT step FROM steps")]
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    assert len(acknowledged) > 1000
