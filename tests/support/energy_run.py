"""A run in a store whose devices, server and steps are scripted in round numbers."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace

from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from tests.support.rows import row

from stepmeter.collector.decode import Rows, RunKey
from stepmeter.collector.samples import SAMPLED, Samples
from stepmeter.store import schema, segments

S = 1_000_000_000
EPOCH_NS = 1_700_000_000 * S
FOREIGN = "foreign-agent"


def at(seconds):
    return EPOCH_NS + round(seconds * S)


@dataclass
class EnergyRun:
    """Rows for the store, from seconds, watts and joules."""

    points: list = field(default_factory=list)
    spans: list = field(default_factory=list)
    steps: list = field(default_factory=list)
    resources: dict = field(default_factory=dict)

    def sender(self, name="resource-0", *, anchored=True, **attributes):
        """A process that sends; ours are anchored, and all of one boot."""
        clock = {"clock_anchor_unix_ns": EPOCH_NS, "clock_anchor_monotonic_ns": 5 * S, "clock_boot_id": "boot"}
        self.resources[name] = {**(clock if anchored else {}), "attributes": json.dumps(attributes)}
        return name

    def point(self, metric, seconds, value, hw_id="gpu-0", sender="resource-0", scope="stepmeter", **attributes):
        if sender not in self.resources:
            self.sender(sender)
        self.points.append(
            {
                "metric": metric,
                "kind": "gauge",
                "time_ns": at(seconds),
                "hw_id": hw_id,
                "double_value": float(value),
                "resource_id": sender,
                "scope_name": scope,
                "attributes": json.dumps({key.replace("_", "."): value for key, value in attributes.items()}),
            }
        )

    def power(self, watts, seconds, every=1.0, **more):
        """Power of a device, constant or by time."""
        for number in range(round(seconds / every) + 1):
            now = number * every
            self.point("hw.power", now, watts(now) if callable(watts) else watts, **more)

    def counter(self, joules, ticks, gap_s=0.001, **more):
        """Ticks of a device's counter: joules by time."""
        for tick in ticks:
            self.point("hw.energy", tick, joules(tick), **more)
            if gap_s is not None:
                self.point("stepmeter.energy.tick_gap", tick, gap_s, **more)

    def server(self, name, per_second, seconds, **more):
        for now in range(seconds + 1):
            self.point(f"stepmeter.inference.{name}", now, per_second * now, None, engine="vllm", model="m", **more)

    def span(self, start, end, span_id, parent=None, name="chat", trace_id="t" * 32, **attributes):
        self.spans.append(
            {
                "trace_id": trace_id,
                "span_id": span_id,
                "parent_span_id": parent,
                "name": name,
                "start_ns": at(start),
                "end_ns": at(end),
                "attributes": json.dumps(attributes),
                "resource_id": FOREIGN,
            }
        )

    def step(self, number, start, end, *, rank=0, hw_id="gpu-0", **values):
        self.steps.append(
            {
                "step": number,
                "attempt": 0,
                "rank": rank,
                "world_size": 1,
                "hw_id": hw_id,
                "start_ns": at(start),
                "end_ns": at(end),
                "resource_id": "resource-0",
                "warmup": False,
                "trace_id": f"{number:032x}",
                "span_id": f"{rank * 1000 + number:016x}",
                "attributes": "{}",
                **values,
            }
        )

    def write(self, directory, run_id="run-1"):
        """The run on disk; returns its directory."""
        run = segments.claim_run(directory, run_id, "scenario")
        tables = {
            schema.METRIC_POINTS: [{"unit": "", "flags": 0, **point} for point in self.points],
            schema.SPANS: self.spans,
            schema.STEPS: self.steps,
            schema.RESOURCES: [
                {"resource_id": name, "attempt": 0 if name.startswith("resource") else None, **values}
                for name, values in ({FOREIGN: {"attributes": "{}"}} | self.resources).items()
            ],
        }
        written = {
            table: [row(table, run_id=run_id, **values) for values in found] for table, found in tables.items()
        } | self._samples(RunKey(run_id, "scenario"))
        for table, rows in written.items():
            if rows:
                segments.write_segment(run, table, rows, "local-0", 1)
        return run

    def _samples(self, key):
        """The points as the collector puts them together."""
        samples, rows = Samples(), Rows()
        for point in self.points:
            if point["metric"] in SAMPLED:
                attributes = json.loads(point["attributes"]) | {"hw.id": point["hw_id"]}
                of = SimpleNamespace(resource_id=point["resource_id"], attributes={})
                number = NumberDataPoint(time_unix_nano=point["time_ns"], as_double=point["double_value"])
                samples.add(key, of, point["metric"], number, attributes, None)
        samples.into(rows)
        return {table: rows.of(key, table) for table in (schema.GPU_SAMPLES, schema.COUNTER_SAMPLES)}


def serving():
    """A device of 100 W and a server that generates 10 tokens a second, for 5 s, as anyone would send them."""
    run = EnergyRun()
    run.sender("server", anchored=False)
    run.power(100, 5, sender="server", scope="dcgm")
    run.server("generation_tokens", 10, 5, sender="server")
    run.server("prompt_tokens", 40, 5, sender="server")
    return run


def training(**values):
    """Ten steps of 0.9 s at 300 W with 0.1 s at 100 W between them, the counter read ten times a second."""
    run = EnergyRun()
    run.sender("resource-0", **{"stepmeter.gpu.power.limit": 700.0})
    run.resources["resource-0"]["hw_id"] = "gpu-0"

    def joules(now):
        whole, part = divmod(round(now * 10), 10)
        return 280 * whole + 30 * min(part, 9) + 10 * (part == 10)

    run.counter(joules, [n / 10 for n in range(111)], 0.0)
    for number in range(10):
        phases = {"forward_cpu_ns": 300_000_000, "backward_cpu_ns": 600_000_000}
        run.step(number + 1, number, number + 0.9, samples=32, **{**phases, **values})
    return run


def on_cpus(run, watts=40):
    """A package and its memory, read ten times a second for 11 s."""
    for zone, kind, power_w in (("package-0", "cpu", watts), ("package-0/dram", "memory", 10)):
        for tick in range(111):
            of = {"hw_id": f"box/{zone}", "hw_type": kind}
            run.point("hw.energy", tick / 10, power_w * tick / 10, **of)
            run.point("stepmeter.energy.tick_gap", tick / 10, 0.0, **of)
    return run
