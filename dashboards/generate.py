"""Writes the Grafana boards from the vocabulary: `make docs` runs it, `make check` sees that its output is current."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from grafana_foundation_sdk.builders import dashboard, prometheus, table, tempo, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableOption, VariableRefresh

from stepmeter.conventions import metrics
from stepmeter.conventions.registry import prometheus_name

HERE = Path(__file__).parent
PROMETHEUS = DataSourceRef("prometheus", "${datasource}")
TEMPO = DataSourceRef("tempo", "${datasource}")
SELECTED = 'run=~"$run", rank=~"$rank"'
ON_GPUS = 'hw_type="gpu"'


@dataclass(frozen=True, slots=True)
class Graph:
    """One graph of the Prometheus board.

    Attributes:
        title: What it shows.
        unit: Grafana's name of the unit.
        queries: (PromQL, legend) of each query.
        note: What a reader should know.
        gpu: Whether only a machine with a GPU has its series.
    """

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    note: str = ""
    gpu: bool = False


def name(metric: metrics.Metric, suffix: str = "") -> str:
    """The name of a metric's series in Prometheus."""
    return prometheus_name(metric.name, metric.unit, metric.instrument) + suffix


def quantile(share: float, metric: metrics.Metric, by: str) -> str:
    """A quantile of a histogram, by some labels."""
    buckets = f"rate({name(metric, '_bucket')}{{{SELECTED}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by ({by}, le) ({buckets}))"


def total(metric: metrics.Metric, by: str, end: str = "_sum") -> str:
    """The rate of a histogram's sum or count, by some labels."""
    return f"sum by ({by}) (rate({name(metric, end)}{{{SELECTED}}}[$__rate_interval]))"


def mean(metric: metrics.Metric, by: str) -> str:
    """The mean of a histogram, by some labels."""
    return f"{total(metric, by)} / {total(metric, by, '_count')}"


def rate(metric: metrics.Metric, by: str, *, of: str = "") -> str:
    """The rate of a counter, by some labels, of some series only."""
    return f"sum by ({by}) (rate({name(metric)}{{{', '.join(filter(None, (SELECTED, of)))}}}[$__rate_interval]))"


def gauge(metric: metrics.Metric) -> str:
    """A gauge as it is; Python's exporter leaves out the `_ratio` that the Collector and Prometheus add to unit 1."""
    if metric.unit == "1":
        bare = name(metric).removesuffix("_ratio")
        return f'{{__name__=~"{bare}(_ratio)?", {SELECTED}}}'
    return f"{name(metric)}{{{SELECTED}}}"


ROWS: tuple[tuple[str, tuple[Graph, ...]], ...] = (
    (
        "Steps",
        (
            Graph(
                "Step time, mean by rank",
                "s",
                ((mean(metrics.STEP_DURATION, "rank, clock"), "rank {{rank}} {{clock}}"),),
            ),
            Graph(
                "Step time, all ranks",
                "s",
                tuple(
                    (quantile(share, metrics.STEP_DURATION, "clock"), f"p{share * 100:.0f} {{{{clock}}}}")
                    for share in (0.5, 0.95)
                ),
                "From histogram buckets, five a decade; exact values are in the run's own store.",
            ),
            Graph("Steps per second", "ops", ((rate(metrics.STEPS, "rank"), "rank {{rank}}"),)),
            Graph("Samples per second", "ops", ((rate(metrics.SAMPLES, "rank"), "rank {{rank}}"),)),
        ),
    ),
    (
        "Phases",
        (
            Graph(
                "Time in each phase, mean",
                "s",
                ((mean(metrics.PHASE_DURATION, "phase, clock"), "{{phase}} {{clock}}"),),
            ),
            Graph(
                "Share of step time",
                "percentunit",
                (
                    (
                        f"{total(metrics.PHASE_DURATION, 'phase, clock')} / on (clock) group_left "  # noqa: ISC004 - one query
                        f"{total(metrics.STEP_DURATION, 'clock')}",
                        "{{phase}} {{clock}}",
                    ),
                ),
                "What is missing to 100 % is the residual: time in the step and in none of its phases.",
            ),
        ),
    ),
    (
        "Ranks and hosts",
        (
            Graph(
                "CPU of the training process",
                "short",
                ((rate(metrics.PROCESS_CPU_TIME, "rank"), "rank {{rank}}"),),
                "Cores.",
            ),
            Graph("Memory of the training process", "bytes", ((gauge(metrics.PROCESS_MEMORY_USAGE), "rank {{rank}}"),)),
            Graph("CPU of the host", "percentunit", ((gauge(metrics.SYSTEM_CPU_UTILIZATION), "{{instance}}"),)),
            Graph(
                "Memory of the host",
                "bytes",
                ((gauge(metrics.SYSTEM_MEMORY_USAGE), "used"), (gauge(metrics.SYSTEM_MEMORY_LIMIT), "limit")),
            ),
        ),
    ),
    (
        "GPU",
        (
            Graph("Utilization", "percentunit", ((gauge(metrics.GPU_UTILIZATION), "{{hw_id}}"),), gpu=True),
            Graph(
                "Memory",
                "bytes",
                (
                    (gauge(metrics.GPU_MEMORY_USAGE), "used {{hw_id}}"),
                    (gauge(metrics.MEMORY_PEAK), "step peak {{kind}} rank {{rank}}"),
                ),
                gpu=True,
            ),
            Graph("Power", "watt", ((gauge(metrics.HW_POWER), "{{hw_id}} {{kind}}"),), gpu=True),
            Graph("Temperature", "celsius", ((gauge(metrics.HW_TEMPERATURE), "{{hw_id}}"),), gpu=True),
        ),
    ),
    (
        "Energy",
        (
            Graph(
                "Power by the energy counter, mean",
                "watt",
                ((rate(metrics.HW_ENERGY, "hw_id"), "{{hw_id}}"),),
                "The counter misses nothing between two readings, as a sampled power may.",
                gpu=True,
            ),
            Graph(
                "Energy per step",
                "joule",
                ((f"{rate(metrics.HW_ENERGY, 'rank', of=ON_GPUS)} / {rate(metrics.STEPS, 'rank')}", "rank {{rank}}"),),
                "All that the rank's GPUs took, over its steps; the share of each phase is in the run's own store.",
                gpu=True,
            ),
        ),
    ),
    (
        "stepmeter itself",
        (
            Graph(
                "Own CPU", "percentunit", ((rate(metrics.SELF_CPU_TIME, "rank"), "rank {{rank}}"),), "Share of a core."
            ),
            Graph(
                "Dropped",
                "short",
                ((f"sum by (kind) ({name(metrics.DROPPED)}{{{SELECTED}}})", "{{kind}}"),),
                "No series is good news: nothing was lost.",
                gpu=True,
            ),
        ),
    ),
)


def prometheus_board() -> str:
    """The board over Prometheus.

    Returns:
        JSON as Grafana imports it.
    """
    label_values = f"label_values({name(metrics.STEPS)}, {{}})"
    board = (
        dashboard.Dashboard("stepmeter: steps, phases, ranks, GPU, energy")
        .uid("stepmeter-metrics")
        .tags(["stepmeter"])
        .refresh("10s")
        .time("now-15m", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(_label_variable("run", "Run", label_values.format("run")))
        .with_variable(_label_variable("rank", "Rank", f'label_values({name(metrics.STEPS)}{{run=~"$run"}}, rank)'))
    )
    for title, graphs in ROWS:
        board = board.with_row(dashboard.Row(title))
        for graph in graphs:
            board = board.with_panel(_panel(graph))
    return JSONEncoder(sort_keys=True, indent=1).encode(board.build()) + "\n"


def trace_board() -> str:
    """The board over Tempo.

    Returns:
        JSON as Grafana imports it.
    """
    searches = (
        (
            "Slowest steps",
            '{ name = "step" && span.stepmeter.rank != nil } | select(span.stepmeter.step, span.stepmeter.rank)',
        ),
        ("Steps that waited for input", '{ name = "input_wait" && duration > 50ms }'),
        ("Runs", '{ name = "run" } | select(span.stepmeter.outcome)'),
    )
    board = (
        dashboard.Dashboard("stepmeter: traces")
        .uid("stepmeter-traces")
        .tags(["stepmeter"])
        .time("now-1h", "now")
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("tempo"))
    )
    for title, query in searches:
        target = tempo.TempoQuery().query_type("traceql").query(query).limit(20).ref_id("A").datasource(TEMPO)
        board = board.with_panel(table.Panel().title(title).datasource(TEMPO).span(24).height(8).with_target(target))
    return JSONEncoder(sort_keys=True, indent=1).encode(board.build()) + "\n"


def _label_variable(variable: str, label: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable)
        .label(label)
        .query(query)
        .datasource(PROMETHEUS)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(graph: Graph) -> timeseries.Panel:
    panel = timeseries.Panel().title(graph.title).unit(graph.unit).datasource(PROMETHEUS).span(12).height(8).min(0)
    if graph.note:
        panel = panel.description(graph.note)
    for number, (query, legend) in enumerate(graph.queries):
        panel = panel.with_target(
            prometheus.Dataquery().expr(query).legend_format(legend).ref_id(chr(ord("A") + number))
        )
    return panel


BOARDS = {"stepmeter-metrics.json": prometheus_board, "stepmeter-traces.json": trace_board}


def main() -> int:
    """Write the boards, or with --check say whether they are current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 when a board is not what the vocabulary says")
    check = parser.parse_args().check
    stale = []
    for file, build in BOARDS.items():
        if check and (HERE / file).read_text(encoding="utf-8") != build():
            stale.append(file)
        elif not check:
            (HERE / file).write_text(build(), encoding="utf-8")
    if stale:
        print(f"dashboards: {', '.join(stale)} not current; `make docs` rewrites them", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
