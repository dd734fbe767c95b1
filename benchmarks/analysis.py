"""What reading costs: a live refresh and a summary of 10^4, 10^5 and 10^6 steps x 8 ranks.

The stores are written by DuckDB in the layout that a collector leaves: some live segments of a second each, some
folded ones, and large ones. A refresh is timed after a new segment of ten steps arrived, so that it reads, aligns and
diagnoses; `unchanged` is one without news. `CPU` is what the refresh took of its thread, which other programs on the
machine disturb less. The summary runs in a process of its own, whose peak memory is told too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb

from stepmeter.analysis.step_time.live import LiveStepTimeSession
from stepmeter.store import schema, segments
from stepmeter.store.files import cold_name
from stepmeter.store.watermark import RankWatermark, Watermark

sys.path.insert(0, str(Path(__file__).parent / "peers"))
from environment import python_of

PEER = "traceml-ai==0.5.0"

RANKS = 8
STEP_NS = 100_000_000
EPOCH_NS = 1_700_000_000_000_000_000
LIVE_SEGMENTS, LIVE_STEPS = 20, 10
FOLDED_SEGMENTS, FOLDED_STEPS = 20, 320
LARGE_STEPS = 131_072

VALUES = {
    "run_id": "'bench'",
    "step": "s",
    "attempt": "0",
    "rank": "r",
    "local_rank": "r",
    "node_rank": "0",
    "world_size": f"{RANKS}",
    "strategy": "'ddp'",
    "warmup": "s = 1",
    "host": "'worker-0'",
    "start_ns": f"{EPOCH_NS} + s * {STEP_NS}",
    "end_ns": f"{EPOCH_NS} + (s + 1) * {STEP_NS} + r * 1000",
    "traced_cpu_ns": "95000000 + hash(s, r) % 1000000",
    "input_wait_cpu_ns": "5000000 + hash(s, r, 1) % 1000000",
    "h2d_cpu_ns": "5000000",
    "forward_cpu_ns": "30000000 + hash(s, r, 2) % 1000000",
    "backward_cpu_ns": "45000000 + hash(s, r, 3) % 1000000",
    "optimizer_cpu_ns": "10000000",
    "trace_id": "md5(s::VARCHAR)",
    "span_id": "substr(md5((s, r)::VARCHAR), 1, 16)",
    "resource_id": "'resource-' || r",
    "attributes": "'{}'",
}
COLUMNS = ", ".join(f'({VALUES.get(c.name, "NULL")})::{c.type} AS "{c.name}"' for c in schema.STEPS.columns)


def copy(connection, path, first, last):
    """Write steps as one segment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    connection.execute(
        f"COPY (SELECT {COLUMNS} FROM range({first}, {last} + 1) t(s), range({RANKS}) u(r) ORDER BY r, s) "  # noqa: S608
        f"TO '{path}' (FORMAT parquet, COMPRESSION zstd)"
    )


def build(directory, n_steps):
    """A run of so many steps of 8 ranks."""
    run = segments.create_run(directory, f"bench-{n_steps}", f"bench-{n_steps}")
    live_from = n_steps - LIVE_SEGMENTS * LIVE_STEPS + 1
    folded_from = live_from - FOLDED_SEGMENTS * FOLDED_STEPS
    pieces = [(first, min(first + LARGE_STEPS, folded_from) - 1, 3) for first in range(1, folded_from, LARGE_STEPS)]
    pieces += [(first, first + FOLDED_STEPS - 1, 1) for first in range(folded_from, live_from, FOLDED_STEPS)]
    pieces += [(first, first + LIVE_STEPS - 1, 0) for first in range(live_from, n_steps, LIVE_STEPS)]
    data, number = run / "data" / "steps", 1
    with duckdb.connect() as connection:
        for first, last, level in pieces:
            count = 32**level
            name = cold_name(number, number + count - 1, level, (first, last)) if level else f"{number:012d}.parquet"
            copy(connection, data / ("cold" if level else "live") / "c=bench" / name, first, last)
            number += count
    advance(run, number - 1, n_steps)
    return run, number


def advance(run, number, n_steps):
    """The watermark that a collector would have left."""
    marks = [
        RankWatermark(
            *(0, rank, n_steps, 1, n_steps, EPOCH_NS + STEP_NS, EPOCH_NS + (n_steps + 1) * STEP_NS + rank * 1000),
            *("ddp", RANKS, rank, 0, "worker-0", None),
        )
        for rank in range(RANKS)
    ]
    watermark = Watermark(run, "bench")
    # as the collector of a long run would have left it; counting millions of rows here would take minutes
    watermark._ranks = {(mark.attempt, mark.rank): mark for mark in marks}  # noqa: SLF001 - see above
    watermark._number = number - 1  # noqa: SLF001 - see above
    watermark.advance(number, [])


def live(run, number, n_steps, rounds):
    """Refreshes with ten new steps each, and as many without."""
    changed, unchanged, cpu = [], [], []
    with LiveStepTimeSession(run) as session, duckdb.connect() as connection:
        began = time.perf_counter()
        session.refresh()
        first_ms = (time.perf_counter() - began) * 1e3
        for _ in range(rounds):
            path = run / "data" / "steps" / "live" / "c=bench" / f"{number:012d}.parquet"
            copy(connection, path, n_steps + 1, n_steps + LIVE_STEPS)
            n_steps += LIVE_STEPS
            advance(run, number, n_steps)
            number += 1
            began, began_cpu = time.perf_counter(), time.thread_time()
            result = session.refresh()
            changed.append((time.perf_counter() - began) * 1e3)
            cpu.append((time.thread_time() - began_cpu) * 1e3)
            began = time.perf_counter()
            session.refresh()
            unchanged.append((time.perf_counter() - began) * 1e3)
            assert result.analysis.window.steps[-1] == n_steps
    return first_ms, changed, cpu, unchanged


def summary(run):
    """The command, its wall time and its peak memory."""
    program = (
        "import json, sys, time; from pathlib import Path; began = time.perf_counter(); "
        "from stepmeter.report.summary import summarize; document = summarize(Path(sys.argv[1])).document; "
        # ru_maxrss would be this process's, from which that one was forked, where that is more
        "peak = next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1]; "
        "print(json.dumps([time.perf_counter() - began, int(peak) / 1024]))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(run)], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def measure(directory, n_steps, rounds):
    """All figures of one size."""
    run, number = build(directory, n_steps)
    first_ms, changed, cpu, unchanged = live(run, number, n_steps, rounds)
    summary_s, peak_mib = summary(run)
    return {
        "steps": n_steps,
        "first_refresh_ms": first_ms,
        "refresh_ms": statistics.median(changed),
        "refresh_cpu_ms": statistics.median(cpu),
        "refresh_p90_ms": statistics.quantiles(changed, n=10)[-1],
        "unchanged_ms": statistics.median(unchanged),
        "summary_s": summary_s,
        "summary_peak_mib": peak_mib,
    }


def peer(n_steps):
    """What traceml-ai takes for a refresh in ms and a summary in s, or why that can't be known."""
    program = Path(__file__).parent / "peers" / "analyze_traceml.py"
    try:
        command = [python_of(PEER), str(program), str(n_steps)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        _, refresh_cpu_ms, summary_s = json.loads(done.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        output = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return None, f"{PEER} could not run: {output[-1] if output else error}"
    return (refresh_cpu_ms, summary_s), ""


def rows(sizes, rounds):
    """Everything measured, as rows of the table."""
    with tempfile.TemporaryDirectory() as directory:
        found = [measure(Path(directory), n_steps, rounds) for n_steps in sizes]
    for row in found:
        size = f"{row['steps']:,} steps x {RANKS}"
        refresh = f"{row['refresh_ms']:.1f} ms (p90 {row['refresh_p90_ms']:.1f}, CPU {row['refresh_cpu_ms']:.1f})"
        yield {
            "what": f"live refresh with new steps, {size}",
            "measured": f"{refresh}; first {row['first_refresh_ms']:.0f}, without news {row['unchanged_ms']:.1f} ms",
            "target": "<= 20 ms",
            "met": row["refresh_ms"] <= 20,
        }
        yield {
            "what": f"summary, {size}",
            "measured": f"{row['summary_s']:.2f} s, {row['summary_peak_mib']:.0f} MiB",
            "target": "<= 3 s, <= 1 GB",
            "met": row["summary_s"] <= 3 and row["summary_peak_mib"] <= 1e9 / 2**20,
        }
    first, last = found[0], found[-1]
    growth = last["refresh_cpu_ms"] / first["refresh_cpu_ms"]
    yield {
        "what": f"CPU of a live refresh, {last['steps']:,} over {first['steps']:,} steps",
        "measured": f"{growth:.2f}",
        "target": "<= 1.5",
        "met": growth <= 1.5,
    }
    theirs, why = peer(first["steps"])
    for name, position, mine in (
        ("CPU of a live refresh", 0, first["refresh_cpu_ms"]),
        ("summary", 1, first["summary_s"]),
    ):
        yield {
            "what": f"  {name} beside traceml-ai 0.5.0, {first['steps']:,} steps x {RANKS}",
            "measured": f"{mine / theirs[position]:.3f} (it takes {theirs[position]:.1f})" if theirs else why,
            "target": "",
            "met": None,
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    arguments = parser.parse_args()
    found = list(rows(arguments.steps, arguments.rounds))
    if arguments.json:
        print(json.dumps(found, indent=1))
        return
    for row in found:
        print(f"{row['what']:<58} {row['measured']:<70} {row['target']}")


if __name__ == "__main__":
    main()
