"""The reference pages on diagnoses and on `final_summary.json`; a test holds the latter to the golden keys."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from stepmeter.analysis import catalogue
from stepmeter.analysis.energy import section as energy
from stepmeter.analysis.memory import facts as memory
from stepmeter.analysis.process import facts as process
from stepmeter.analysis.section import SectionMetric
from stepmeter.analysis.step_time.model import METRICS
from stepmeter.analysis.system import facts as system
from stepmeter.report.summary import SUMMARY_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

_FINDING: Final = {
    "kind": "stable name, for programs; `stepmeter diagnoses --explain KIND` explains it",
    "status": "the same for people",
    "severity": "`info`, `warn` or `crit`",
    "summary": "why, with numbers",
    "action": "the first thing to try",
}

KEYS: Final[dict[str, str]] = {
    "schema_version": "version of these keys and of the meaning of null; moves with them",
    "generated_at": "when the summary was made, ISO 8601",
    "duration_s": "from the first step's start to the last step's end, over all ranks of the latest attempt",
    "meta.run_id": "identity of the run",
    "meta.run_name": "its name for people; null when it has none",
    "meta.mode": "`single_node`, `multi_node`, or `no_data` without steps",
    "meta.world_size": "ranks that ever reported or that the world size promises",
    "meta.nodes_observed": "nodes from which ranks reported",
    "meta.gpus_observed": "devices from which ranks reported",
    **{f"primary_diagnosis.{key}": text for key, text in _FINDING.items()},
    "primary_diagnosis.section": "section that it comes from",
    "primary_diagnosis.scope": "always `performance`: findings about health stay in their sections",
    "primary_diagnosis.evidence.*": (
        "`type` is `phase_share`, `rank_comparison`, `utilization_fallback`, `no_clear_bottleneck` or "
        "`insufficient_data`; the numbers stand beside it, units in their names"
    ),
    "<section>.metadata.mode": "as `meta.mode`; `no_data` when the section has none",
    "<section>.metadata.duration_s": "time that the section's steps or readings span; null without any",
    "<section>.metadata.samples": "steps times ranks, or data points, that the section sums up",
    "<section>.metadata.nodes_expected": "nodes that the world size makes; null when ranks a node are not known",
    "<section>.metadata.nodes_observed": "nodes from which ranks reported",
    "<section>.metadata.nodes_coverage": "observed over expected nodes; null when these are not known",
    "<section>.metadata.nodes_partial": "whether a node is missing; null when it is not known",
    "<section>.metadata.gpus_observed": "devices from which ranks reported",
    "<section>.metadata.global_ranks_seen": "ranks that reported steps",
    "<section>.metadata.global_ranks_used": "ranks that the section's numbers are of",
    "<section>.metadata.training_total_steps": "steps in the store, all ranks of the latest attempt",
    "<section>.metadata.training_latest_step": "greatest step of any rank",
    "<section>.metadata.section_metric_names": "the section's metrics, measured or not",
    **{f"<section>.diagnosis.{key}": text for key, text in _FINDING.items()},
    "<section>.diagnosis.metric": "metric that shows it; null when none does",
    "<section>.diagnosis.phase": "phase that shows it; null when none does",
    "<section>.diagnosis.score": "what it costs as a share, 0 to 1; null for findings without a cost",
    "<section>.diagnosis.share": "share of the metric in step time, or of a limit, 0 to 1",
    "<section>.diagnosis.skew": "(worst - median) / median of the metric over ranks",
    "<section>.diagnosis.ranks": "the ranks it is about; empty when it is about all",
    "<section>.diagnosis.evidence.*": "further numbers, units in their names",
    "<section>.issues[]": "all findings, never empty, in order; the first equals `diagnosis`",
    "<section>.global.index_by": "what rows are numbered by: `global_rank` or `node_rank`",
    "<section>.global.window.kind": "`tail`: the latest steps; `readings`: points in time; null without data",
    "<section>.global.window.alignment": "`common_steps`: steps that all ranks completed; or `none`",
    "<section>.global.window.clock": "`cpu` or `gpu`, one for the whole window; null where there is none",
    "<section>.global.window.steps_analyzed": "steps in the window",
    "<section>.global.window.start_step": "first of them",
    "<section>.global.window.end_step": "last of them",
    "<section>.global.window.completed_step": "last step that all ranks completed",
    "<section>.global.window.window_size": "how many steps the window may hold",
    "<section>.global.window.coverage.expected_steps": "steps that any rank completed within the window's reach",
    "<section>.global.window.coverage.steps_used": "of these, the analyzed ones",
    "<section>.global.window.coverage.world_size": "ranks that were expected",
    "<section>.global.window.coverage.ranks_present": "ranks that take part",
    "<section>.global.window.coverage.warmup_steps_left_out": "steps left out as warm-up",
    "<section>.global.window.coverage.gpu_steps_left_out": "steps left out because a device time was lost",
    "<section>.global.window.coverage.missing_steps.*": "gaps in the numbering, by rank",
    "<section>.global.window.coverage.dropped": "what programs reported as lost, by kind",
    "<section>.global.average.<metric>": "mean over ranks or nodes",
    "<section>.global.median.<metric>.value": "value of the real rank or node nearest the median",
    "<section>.global.median.<metric>.idx": "its number",
    "<section>.global.worst.<metric>.value": "the worst value: the largest, or the least headroom and utilization",
    "<section>.global.worst.<metric>.idx": "number of the rank or node that has it",
    "<section>.global.interval.<metric>.low": "lower end of the median's 95 % interval over steps",
    "<section>.global.interval.<metric>.high": "upper end of it",
    "<section>.global.share.<metric>.mean": "share of a component in step time, median over ranks",
    "<section>.global.share.<metric>.typical": "the same in the median step",
    "<section>.global.share.<metric>.low": "lower end of the 95 % interval of `mean`",
    "<section>.global.share.<metric>.high": "upper end of it",
    "<section>.groups.by": "as `global.index_by`",
    "<section>.groups.rows.*.identity.global_rank": "the rank; null for a node",
    "<section>.groups.rows.*.identity.local_rank": "rank within its node",
    "<section>.groups.rows.*.identity.node_rank": "rank of the node",
    "<section>.groups.rows.*.identity.hostname": "name of the host",
    "<section>.groups.rows.*.identity.world_size": "number of ranks that the rank knew",
    "<section>.groups.rows.*.identity.hw_id": "UUID of the rank's GPU; null without one",
    "<section>.groups.rows.*.metrics.<metric>": "the metric of this rank or node",
    "<section>.units.<metric>": "its unit in UCUM",
    "<section>.card": "the section as text",
    "text": "the verdict as text, what `stepmeter summary` prints",
}
"""Every key that holds a value, with what it says."""

BRIEFS: Final[dict[str, str]] = {
    "input_wait_ms": "waiting for the next batch",
    "step_time_ms": "input wait and traced time",
    "traced_step_time_ms": "from the end of the input wait to the end of the step",
    "step_time_cpu_ms": "step time on the CPU clock",
    "step_time_gpu_ms": "step time on the device clock",
    "traced_step_time_cpu_ms": "traced time on the CPU clock",
    "traced_step_time_gpu_ms": "traced time on the device clock",
    "dataloader_fetch_cpu_ms": "input wait on the CPU clock: evidence, never added to anything",
    "h2d_ms": "transfers to the device",
    "compute_ms": "forward, backward and optimizer",
    "residual_ms": "traced time outside all phases, 0 or more; not proof of communication",
    "forward_ms": "forward pass of the root module",
    "backward_ms": "backward pass",
    "optimizer_ms": "optimizer steps",
    "peak_allocated_bytes": "most that tensors held in a step of the window",
    "peak_reserved_bytes": "most that the caching allocator held in a step of the window",
    "peak_allocated_share": "the same of the device's memory",
    "peak_reserved_share": "the same of the device's memory",
    "cpu_share": "CPUs busy, of those of the host",
    "cpu_cores": "CPUs that the process kept busy on average",
    "ram_bytes": "host memory in use on average",
    "ram_share": "the same of the host's memory",
    "ram_peak_share": "most host memory in use, of the host's memory",
    "rss_bytes": "resident memory of the process on average",
    "rss_peak_share": "its greatest resident memory, of the host's memory",
    "gpu_utilization_share": "time in which a kernel ran, mean over the node's GPUs",
    "gpu_memory_bytes": "device memory in use on average, mean over the node's GPUs",
    "gpu_memory_peak_share": "most device memory in use, of the fullest GPU",
    "gpu_memory_headroom_bytes": "device memory that the peak left free",
    "gpu_temperature_peak_c": "highest temperature of the hottest GPU",
    "gpu_power_w": "mean power, mean over the node's GPUs",
    "gpu_power_share": "mean power of its limit, of the GPU closest to it",
    "gpu_memory_allocated_bytes": "most that the process's tensors held in a step",
    "gpu_memory_reserved_bytes": "most that the process's allocator held in a step",
    "gpu_memory_reserved_share": "the same of the device's memory",
    "step_energy_mj": "energy of the median step, warm-up apart",
    "step_energy_bound_mj": "half of the median step's bounds: the truth is within so much of it",
    "sample_energy_mj": "energy of the steps over their samples; null where a step does not know them",
    "token_energy_mj": "energy of the steps over their tokens; null where a step does not know them",
    "total_energy_mj": "energy of the steps",
    "step_cpu_energy_mj": "energy of the host's CPUs and memory during the median step, whoever used them",
}
"""Every metric of every section; the unit is in its name."""

SECTION_METRICS: Final[dict[str, tuple[str, ...]]] = {
    "step_time": METRICS,
    **{
        name: tuple(metric.name for metric in metrics)
        for name, metrics in (
            ("step_memory", memory.METRICS),
            ("system", system.METRICS),
            ("process", process.METRICS),
            ("energy", energy.METRICS),
        )
    },
}

_INTRODUCTION: Final = f"""\
# final_summary.json

Generated by `make docs`; do not edit. Version {SUMMARY_VERSION}.

`stepmeter run` leaves this file in the run's directory, and `stepmeter summary RUN --json` prints it at any time.
`<section>` is `step_time`, `step_memory`, `system`, `process` or `energy`, all of one shape; `<metric>` is one of the
section's metrics below.

- **null was never measured; 0.0 was measured.** Every key is always there. A value that is null is left out of
  averages, medians and worst values. Numbers are finite.
- Step time, its traced part and the phases are on the window's one clock; `_cpu_` and `_gpu_` name a clock explicitly.
- A metric that a rank did not measure on every step of the window is null for that rank; `h2d_ms` and `optimizer_ms`
  may occur now and then, and are zero work on the other steps.
- `schema_version` moves when a key comes or goes or a null changes its meaning. The first number stays while old keys
  keep their meaning; `stepmeter compare` reads every file of the same first number.
"""


def reference_page() -> str:
    """The page on the summary's keys, in Markdown."""
    parts = [_INTRODUCTION, "## Keys\n", _table(("key", "what"), KEYS.items())]
    for section, names in SECTION_METRICS.items():
        units = [(name, SectionMetric(name).unit, BRIEFS[name]) for name in names]
        rows = ((f"{name}", f"{unit}", brief) for name, unit, brief in units)
        parts += [f"## Metrics of `{section}`\n", _table(("metric", "unit", "what"), rows)]
    return "\n".join(parts)


def pages() -> dict[Path, str]:
    """The generated pages on what is found and told, by their paths in a checkout."""
    return {
        Path("docs/reference/diagnoses.md"): catalogue.reference_page(),
        Path("docs/reference/summary.md"): reference_page(),
    }


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| `{name}` | {' | '.join(rest)} |" for name, *rest in rows]
    return "\n".join(lines) + "\n"
