"""What the collector costs and how fast it is: from receive to acknowledged, to segments, to answers.

    python benchmarks/collector.py [--json]

CPU times are of this process, over all of its threads; a figure "per core" is spans over CPU seconds. Acknowledgement
times are wall times over loopback with one sender, beside whatever else the machine does.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.otlp import collector_process, span, step_span, traces

from stepmeter.collector import interpreter
from stepmeter.collector.decode import RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import TRACES, Encoding

SPANS = 512
REQUESTS = 120
RUN = RunKey("run-1", "bench")
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
STEP_FACTS = {
    "stepmeter.strategy": "ddp",
    "stepmeter.samples": 64,
    "stepmeter.local_rank": 0,
    "stepmeter.node_rank": 0,
    "hw.id": "GPU-0b1c2d3e",
    "stepmeter.phase.optimizer.count": 1,
}
DURATIONS = {
    "stepmeter.traced.cpu_ns": 8_000_000,
    **{f"stepmeter.phase.{phase}.cpu_ns": 1_000_000 for phase in ("input_wait", "forward", "backward", "optimizer")},
}
FOREIGN = {**{f"int.{n}": n for n in range(4)}, **{f"double.{n}": n + 0.5 for n in range(3)}}
FOREIGN |= {f"text.{n}": "some text" for n in range(3)}


def steps(number):
    """A request of steps with 22 attributes whose durations differ."""
    first = number * SPANS
    return traces(
        *(
            step_span(
                first + n + 2,
                **STEP_FACTS,
                **{key: duration_ns + 1000 * (first + n) for key, duration_ns in DURATIONS.items()},
            )
            for n in range(SPANS)
        )
    )


def foreign(number):
    """A request of somebody else's spans with 10 attributes."""
    first = number * SPANS
    spans = (span("call", number=first + n + 1, start_ns=first + n, attributes=FOREIGN) for n in range(SPANS))
    return traces(*spans, scope="user")


def cost(make, requests=REQUESTS):
    """CPU seconds a span until acknowledged, and until in segments; bytes a span on disk."""
    bodies = [make(number).SerializeToString() for number in range(requests)]
    with tempfile.TemporaryDirectory() as directory:
        processor = DuckdbProcessor(Path(directory), RUN, Health(), flush_interval_s=3600.0)
        processor.accept(Record(TRACES, Encoding.PROTOBUF, make(requests).SerializeToString()))
        time.sleep(2.0)  # the run's directory is made meanwhile
        begin_s = time.process_time()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda body: processor.accept(Record(TRACES, Encoding.PROTOBUF, body)), bodies))
        acknowledged_s = time.process_time() - begin_s
        processor.close()
        stored_s = time.process_time() - begin_s
        files = Path(directory).glob("bench/data/*/live/c=*/*[1-9].parquet")
        size_bytes = sum(file.stat().st_size for file in files)
    spans = requests * SPANS
    return acknowledged_s / spans, stored_s / spans, size_bytes / spans


def decoding(make):
    """CPU seconds a span of the protobuf library alone: how fast this machine is."""
    bodies = [make(number).SerializeToString() for number in range(20)]
    times_s = []
    for _ in range(5):
        begin_s = time.process_time()
        for body in bodies:
            TRACES.request.FromString(body)
        times_s.append((time.process_time() - begin_s) / len(bodies) / SPANS)
    return min(times_s)


def acknowledgements(rate=10_000, seconds=6.0):
    """Wall times of gRPC acknowledgements at a rate of spans a second, in a process of its own."""
    bodies = [steps(number).SerializeToString() for number in range(int(rate / SPANS * seconds))]
    times_s = []
    with tempfile.TemporaryDirectory() as directory, collector_process(Path(directory), "--run", "run-1") as running:
        with grpc.insecure_channel(running.grpc) as channel:
            send = channel.unary_unary(METHOD, None, None)
            send(bodies[0])
            begin_s = time.perf_counter()
            for number, body in enumerate(bodies[1:], 1):
                time.sleep(max(0.0, begin_s + number * SPANS / rate - time.perf_counter()))
                sent_s = time.perf_counter()
                send(body)
                times_s.append(time.perf_counter() - sent_s)
        running.stop()
    quantiles = statistics.quantiles(times_s, n=100)
    return quantiles[49], quantiles[98]


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures for programs")
    as_json = parser.parse_args().json
    interpreter.begin()
    interpreter.settle()
    rows = []
    for name, make, durable, in_segments in (
        ("step spans of 22 attributes", steps, 150_000, 60_000),
        ("foreign spans of 10 attributes", foreign, None, 50_000),
    ):
        rows.append(row(f"{name}: protobuf alone decodes them, spans/s/core", 1 / decoding(make)))
        acknowledged, stored, size_bytes = min(cost(make) for _ in range(3))
        rows.append(row(f"{name}: durable, spans/s/core", 1 / acknowledged, durable))
        rows.append(row(f"{name}: in segments, spans/s/core", 1 / stored, in_segments))
        rows.append(row(f"{name}: bytes a span on disk", size_bytes))
    p50_s, p99_s = acknowledgements()
    rows.append(row("acknowledged at 10,000 spans/s: p50, ms", p50_s * 1e3))
    rows.append(row("acknowledged at 10,000 spans/s: p99, ms", p99_s * 1e3, 20, least=False))
    if as_json:
        print(json.dumps(rows))
        return
    for found in rows:
        print(f"{found['what']:<74}{found['measured']:>10,} {found['target']}")


def row(what, measured, target=None, *, least=True):
    """A row of the table."""
    rounded = round(measured) if measured > 1000 else round(measured, 2)
    if target is None:
        return {"what": what, "measured": rounded, "target": "", "met": None}
    met = measured >= target if least else measured <= target
    return {"what": what, "measured": rounded, "target": f"{'at least' if least else 'at most'} {target:,}", "met": met}


if __name__ == "__main__":
    main()
