"""What user spans, alert rules and traces cost: beside expr_tracker 0.4.1 and OpenTelemetry's SDK, in one process.

The peers run in an environment of expr_tracker's own, to which ours is added, in short blocks that follow one another
in turn; figures are medians of producer thread CPU time.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from stepmeter.alerts.engine import AlertEngine
from stepmeter.alerts.rule import parse_rule
from stepmeter.conventions.rows import Row

HERE = Path(__file__).parent
PEERS = HERE / "peers"
sys.path.insert(0, str(PEERS))
from environment import python_of  # noqa: E402 - beside the peers

PEER = "expr-tracker==0.4.1"
SHARE = 0.4
SPAN_US = 6.0
SDK_US = 15.1  # of a bare span of the SDK with a batch processor, on the machine for which the target was set
TRACE_SPANS = 1_000_000
TRACE_MIB = 700  # half a GiB for sorting, and what DuckDB and its readers take
SEGMENT_SPANS = 100_000
PEER_TRACE_US = 29.0
RULES_US = 100.0


def beside():
    """What the peers' program printed, or why it could not run."""
    paths = [str(PEERS), str(HERE.parent / "src"), sysconfig.get_paths()["purelib"]]
    program = f"import sys; sys.path += {paths!r}\nimport beside_expr_tracker; beside_expr_tracker.main()"
    try:
        command = [python_of(PEER), "-c", program]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
        return json.loads(done.stdout.splitlines()[-1]), ""
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        output = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return {}, f"{PEER} could not run: {output[-1] if output else error}"


def span_rows(found, why):
    """Spans beside the peers."""
    if why:
        yield {"what": "user spans beside the peers", "measured": why, "target": f"<= {SHARE}", "met": None}
        return
    for form, us in found["producer_us"].items():
        worst = max(us["stepmeter"] / us["expr_tracker"], us["stepmeter"] / us["sdk"])
        yield {
            "what": f"a span, {form}, producer CPU",
            "measured": f"{us['stepmeter']:.1f} us, expr_tracker {us['expr_tracker']:.1f}, SDK {us['sdk']:.1f}"
            f" ({worst:.2f} of the nearer)",
            "target": f"<= {SHARE}",
            "met": worst <= SHARE,
        }
    bare = found["producer_us"]["bare"]
    scaled = bare["stepmeter"] / slower(found)
    yield {
        "what": "a bare span, as on a quiet machine",
        "measured": f"{scaled:.1f} us",
        "target": f"<= {SPAN_US:.0f} us",
        "met": scaled <= SPAN_US,
    }
    threads = {name: " / ".join(f"{us:.1f}" for us in each.values()) for name, each in found["threads_us"].items()}
    yield {
        "what": "a span on 1 / 2 / 4 / 8 threads, process CPU us",
        "measured": f"{threads['stepmeter']}, expr_tracker {threads['expr_tracker']}, SDK {threads['sdk']}",
        "target": "",
        "met": None,
    }
    rates = {name: f"{rate / 1e3:.0f} k/s {us:.0f} us" for name, (rate, us) in found["drained"].items()}
    yield {
        "what": "drained: spans a second and CPU of all threads",
        "measured": f"{rates['stepmeter']}, expr_tracker {rates['expr_tracker']}, SDK {rates['sdk']}",
        "target": ">= expr_tracker",
        "met": found["drained"]["stepmeter"][0] >= found["drained"]["expr_tracker"][0] and not found["lost"],
    }
    kept = ", ".join(f"{name} {kib:.0f} KiB" for name, kib in found["retained_kib"].items())
    met = found["retained_kib"]["stepmeter, span_metrics=False"] < 5 * 1024
    yield {"what": "kept after 10,000 distinct names", "measured": kept, "target": "trace only < 5 MiB", "met": met}


def slower(found):
    """How much slower the machine is than when the targets were set, by the SDK's own span; 1 when not known."""
    return max(1.0, found["producer_us"]["bare"]["sdk"] / SDK_US) if found else 1.0


def rule_rows(found):
    """Ten rules on a row of ten values."""
    rules = [parse_rule(f"m{index} > 3 * mean(m{index}[100]) => error") for index in range(10)]
    engine = AlertEngine(rules, 0.0, lambda _: None)
    rows = [Row(step, step * 10**9, {f"m{index}": 1.0 for index in range(10)}) for step in range(3000)]
    best = float("inf")
    for start in range(0, 3000, 500):
        begin_ns = time.thread_time_ns()
        for row in rows[start : start + 500]:
            engine.on_row(row)
        best = min(best, (time.thread_time_ns() - begin_ns) / 500 / 1e3)
    yield {
        "what": "ten rules over windows of 100, a row",
        "measured": f"{best:.0f} us, {best / slower(found):.0f} as on a quiet machine",
        "target": f"<= {RULES_US:.0f} us",
        "met": best / slower(found) <= RULES_US,
    }


TRACE = """
import json, resource, sys, time
from pathlib import Path
from stepmeter.report.trace import Selection, write_trace
run, output = map(Path, sys.argv[1:])
write_trace(run, output, Selection(steps=(0, 1)))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
count = write_trace(run, output, Selection())
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([count, time.process_time() - start, grown / 1024]))
"""


def trace_rows(found):
    """Export of many spans."""
    from stepmeter.store.schema import SPANS
    from stepmeter.store.segments import create_run, write_segment

    with tempfile.TemporaryDirectory() as directory:
        run = create_run(Path(directory), "run-1", "bench")
        place = {name: index for index, name in enumerate(SPANS.column_names)}
        rows, segments = [], 0
        for number in range(TRACE_SPANS):
            row = [None] * len(place)
            values = {
                "run_id": "run-1",
                "trace_id": f"{number:032x}",
                "span_id": f"{number:016x}",
                "name": "forward",
                "scope_name": "stepmeter",
                "start_ns": number * 1000,
                "end_ns": number * 1000 + 900,
                "rank": 0,
                "step": number // 10,
                "resource_id": "r",
                "attributes": '{"stepmeter.span.path":"forward","thread.id":1,"thread.name":"main"}',
            }
            for name, value in values.items():
                row[place[name]] = value
            rows.append(tuple(row))
            if len(rows) == SEGMENT_SPANS:
                segments += 1
                write_segment(run, SPANS, rows, "bench", segments)
                rows.clear()
        command = [sys.executable, "-c", TRACE, str(run), f"{directory}/trace.json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        count, cpu_s, grown_mib = json.loads(done.stdout)
    us = cpu_s / count * 1e6
    peer_us = found.get("trace_us", PEER_TRACE_US)
    yield {
        "what": f"trace of {count:,} spans, CPU of all threads",
        "measured": f"{us:.1f} us a span, +{grown_mib:.0f} MiB; expr_tracker {peer_us:.1f} us",
        "target": f"<= 1/5 of it, < {TRACE_MIB} MiB",
        "met": us <= peer_us / 5 and grown_mib < TRACE_MIB,
    }


def rows():
    """Everything measured."""
    found, why = beside()
    yield from span_rows(found, why)
    yield from rule_rows(found)
    yield from trace_rows(found)


if __name__ == "__main__":
    measured = []
    for row in rows():
        measured.append(row)
        if "--json" not in sys.argv:
            print(f"{row['what']:<50} {row['measured']}  (target {row['target']})", flush=True)
    if "--json" in sys.argv:
        print(json.dumps(measured))
