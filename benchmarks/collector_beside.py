"""The collector beside others: Rotel with the same processor, DuckDB alone, and a bare server that only appends.

    python benchmarks/collector_beside.py [--json]

CPU is that of a whole process and its threads, from what it had once it was warm to when all spans were stored. The
bare server takes the same requests over gRPC, appends them to one file and syncs it: what durable costs on this disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import duckdb
import grpc
import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))

from tests.support.otlp import collector_process, wait_until

from collector import METHOD, RUN, SPANS, foreign, row, steps
from stepmeter.collector.decode import Rows
from stepmeter.collector.otlp import TRACES
from stepmeter.collector.signals import CONTENTS
from stepmeter.store.arrow import to_arrow
from stepmeter.store.reader import find_run, open_run
from stepmeter.store.schema import SPANS as SPANS_TABLE
from stepmeter.store.schema import STEPS

REQUESTS = 100
RATE = 10_000
BARE = """
import concurrent.futures, os, sys, threading
import grpc
descriptor, lock, size = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), threading.Lock(), 0

def export(body, context):
    global size
    with lock:
        size += os.pwrite(descriptor, body, size)
        os.fdatasync(descriptor)
    return b""

server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
method = grpc.unary_unary_rpc_method_handler(export)
service = "opentelemetry.proto.collector.trace.v1.TraceService"
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
"""


@contextmanager
def bare_server(directory):
    """A server that only appends and syncs; yields its address and process."""
    command = [sys.executable, "-c", BARE, str(directory / "bodies")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield f"127.0.0.1:{process.stdout.readline().strip()}", process.pid
        process.kill()


@contextmanager
def ours(directory):
    """Our collector; yields its address and process."""
    with collector_process(directory, "--run", "run-1") as running:
        yield running.grpc, running.process.pid


@contextmanager
def rotel(directory):
    """Rotel with our processor inside, which sends on to nobody; yields its address and process."""
    from tests.collector import test_rotel

    from stepmeter.collector import rotel as inside

    environ = {
        "STEPMETER_DIR": str(directory),
        "ROTEL_EXPORTER": "blackhole",
        "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(Path(inside.__file__).parents[2])]),
    }
    arguments = ("--otlp-with-trace-processor", inside.__file__)
    with test_rotel.agent("http://127.0.0.1:1", "grpc", *arguments, **environ) as (address, _):
        (agent,) = [child for child in psutil.Process().children() if "rotel" in child.name()]
        yield address, agent.pid


def times_s(address, bodies, rate=None):
    """Send requests one after another, at a rate of spans a second if one is given; the wall time of each."""
    found = []
    with grpc.insecure_channel(address) as channel:
        send = channel.unary_unary(METHOD, None, None)
        begin_s = time.perf_counter()
        for number, body in enumerate(bodies):
            if rate:
                time.sleep(max(0.0, begin_s + number * SPANS / rate - time.perf_counter()))
            sent_s = time.perf_counter()
            send(body)
            found.append(time.perf_counter() - sent_s)
    return found


def cpu_s(pid):
    """CPU seconds of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def stored(directory, table):
    """How many rows a run has, 0 before there is one."""
    try:
        with open_run(find_run("run-1", directory)) as reader:
            return reader.snapshot().rows(f"SELECT count(*) FROM raw.{table}")[0][0]  # noqa: S608 - names of ours
    except Exception:
        return 0


def cost(serve, make, table):
    """Microseconds of CPU a span from the wire to segments, and the process's memory in MiB."""
    bodies = [make(number).SerializeToString() for number in range(REQUESTS + 1)]
    with tempfile.TemporaryDirectory() as directory, serve(Path(directory)) as (address, pid):
        times_s(address, bodies[:1])
        wait_until(lambda: stored(Path(directory), table) == SPANS, 60)
        time.sleep(2.0)  # whatever a start still loads
        begin_s = cpu_s(pid)
        times_s(address, bodies[1:])
        wait_until(lambda: stored(Path(directory), table) == SPANS * (REQUESTS + 1), 120)
        return (cpu_s(pid) - begin_s) / (REQUESTS * SPANS) * 1e6, psutil.Process(pid).memory_info().rss / 2**20


def duckdb_alone(make, table):
    """Microseconds of CPU a span for DuckDB to insert the rows, decoded and in Arrow, into a table of its own file."""
    rows = Rows()
    for number in range(REQUESTS):
        body = make(number).SerializeToString()
        CONTENTS[TRACES].decode(CONTENTS[TRACES].read(body), RUN, rows)
    batch = to_arrow(table, rows.of(RUN, table), rows.blocks_of(RUN, table))
    with tempfile.TemporaryDirectory() as directory, duckdb.connect(f"{directory}/alone.duckdb") as connection:
        connection.register("batch", batch)
        connection.execute("CREATE TABLE kept AS FROM batch LIMIT 0")
        begin_s = time.process_time()
        for first in range(0, len(batch), 10_000):  # a second's worth at a time
            connection.register("part", batch.slice(first, 10_000))
            connection.execute("INSERT INTO kept FROM part")
        connection.execute("CHECKPOINT")
        return (time.process_time() - begin_s) / len(batch) * 1e6


def acknowledgements(serve, seconds=6.0):
    """Median and 99th percentile of acknowledgements at the rate, in ms."""
    bodies = [steps(number).SerializeToString() for number in range(int(RATE / SPANS * seconds))]
    with tempfile.TemporaryDirectory() as directory, serve(Path(directory)) as (address, _):
        times_s(address, bodies[:1])
        time.sleep(3.0)
        quantiles = statistics.quantiles(times_s(address, bodies[1:], RATE), n=100)
    return quantiles[49] * 1e3, quantiles[98] * 1e3


def measured():
    """All rows."""
    for what, make, table in (("step", steps, STEPS), ("foreign", foreign, SPANS_TABLE)):
        own_us, memory_mib = cost(ours, make, table.name)
        yield row(f"{what} spans over gRPC to segments: whole process, us CPU a span", own_us)
        yield row(f"{what} spans: memory of the collector after {REQUESTS * SPANS:,} spans, MiB", memory_mib)
        try:
            rotel_us, memory_mib = cost(rotel, make, table.name)
        except ImportError as error:
            yield {"what": f"{what} spans through Rotel", "measured": f"not run: {error}", "target": "", "met": None}
        else:
            yield row(f"{what} spans through Rotel with the same processor, us CPU a span", rotel_us)
            yield row(f"{what} spans: ours over Rotel's, CPU", own_us / rotel_us)
        alone_us = duckdb_alone(make, table)
        yield row(f"{what} spans: DuckDB alone, decoded rows into its own file, us CPU a span", alone_us)
        yield row(f"{what} spans: ours over DuckDB alone, CPU", own_us / alone_us)
    pairs = [(acknowledgements(ours), acknowledgements(bare_server)) for _ in range(2)]
    for name, number in (("p50", 0), ("p99", 1)):
        (mine, bare) = (statistics.median(pair[side][number] for pair in pairs) for side in (0, 1))
        yield row(f"acknowledged at {RATE:,} spans/s, {name}: ours, ms", mine)
        yield row(f"acknowledged at {RATE:,} spans/s, {name}: a bare server that appends and syncs, ms", bare)


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print figures for programs")
    if parser.parse_args().json:
        print(json.dumps(list(measured())))
        return
    for found in measured():
        print(f"{found['what']:<90}{found['measured']!s:>10} {found['target']}", flush=True)


if __name__ == "__main__":
    main()
