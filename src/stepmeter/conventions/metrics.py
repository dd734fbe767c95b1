"""The metrics we emit: name, instrument, unit, attributes and bucket bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Instrument = Literal["counter", "gauge", "histogram"]

DURATION_BOUNDS_S: Final = (
    *(mantissa * 10.0**exponent for exponent in range(-4, 2) for mantissa in (1.0, 1.5, 2.5, 4.0, 6.5)),
    100.0,
)
"""Bucket bounds of the duration histograms, 0.1 ms to 100 s, five a decade, in seconds."""


@dataclass(frozen=True, slots=True, eq=False)  # each is one of a kind, and its hash is taken on every step
class Metric:
    """One metric.

    Attributes:
        name: The name on the wire.
        instrument: What it is.
        unit: The unit in UCUM, without prefixes.
        brief: What it counts or measures.
        attributes: Keys of its data points' attributes.
        bounds: Explicit bucket bounds of a histogram, in `unit`.
    """

    name: str
    instrument: Instrument
    unit: str
    brief: str
    attributes: tuple[str, ...] = ("rank", "run")
    bounds: tuple[float, ...] = ()


STEPS: Final = Metric("stepmeter.steps", "counter", "{step}", "Steps completed.")
SAMPLES: Final = Metric("stepmeter.samples", "counter", "{sample}", "Samples in completed steps.")
TOKENS: Final = Metric("stepmeter.tokens", "counter", "{token}", "Tokens in completed steps.")
STEP_DURATION: Final = Metric(
    "stepmeter.step.duration",
    "histogram",
    "s",
    "Duration of a step: input wait and traced time.",
    ("rank", "run", "clock"),
    DURATION_BOUNDS_S,
)
PHASE_DURATION: Final = Metric(
    "stepmeter.phase.duration",
    "histogram",
    "s",
    "Time a step spent in a phase.",
    ("rank", "run", "clock", "phase"),
    DURATION_BOUNDS_S,
)
MEMORY_PEAK: Final = Metric(
    "stepmeter.memory.peak",
    "gauge",
    "By",
    "Peak device memory of the latest step.",
    ("rank", "run", "hw.id", "kind"),
)
DROPPED: Final = Metric(
    "stepmeter.dropped",
    "counter",
    "{item}",
    "What was lost on the way: `kind` says what and why.",
    ("rank", "run", "kind"),
)
SPAN_DURATION: Final = Metric(
    "stepmeter.span.duration",
    "histogram",
    "s",
    "Duration of user spans, by path; paths beyond the first thousand count as `other`.",
    ("rank", "run", "path"),
    DURATION_BOUNDS_S,
)
NONFINITE: Final = Metric(
    "stepmeter.nonfinite",
    "counter",
    "{value}",
    "Values of `log()` that were NaN or infinite, by their name: other metrics leave them out.",
    ("rank", "run", "kind"),
)
SELF_CPU_TIME: Final = Metric(
    "stepmeter.self.cpu_time", "counter", "s", "CPU time that stepmeter's own threads took in this process."
)

PROCESS_CPU_TIME: Final = Metric("process.cpu.time", "counter", "s", "CPU time of the process, user and system.")
PROCESS_MEMORY_USAGE: Final = Metric("process.memory.usage", "gauge", "By", "Resident memory of the process.")
SYSTEM_CPU_UTILIZATION: Final = Metric(
    "system.cpu.utilization", "gauge", "1", "Share of all cores that was busy since the last reading."
)
SYSTEM_CPU_LOGICAL_COUNT: Final = Metric("system.cpu.logical.count", "gauge", "{cpu}", "Logical cores of the host.")
SYSTEM_MEMORY_USAGE: Final = Metric("system.memory.usage", "gauge", "By", "Memory of the host that is not available.")
SYSTEM_MEMORY_LIMIT: Final = Metric("system.memory.limit", "gauge", "By", "Memory of the host.")

_GPU = ("rank", "run", "hw.id", "hw.type")
GPU_UTILIZATION: Final = Metric(
    "hw.gpu.utilization", "gauge", "1", "Share of time in which a kernel ran on the device.", _GPU
)
GPU_MEMORY_USAGE: Final = Metric("hw.gpu.memory.usage", "gauge", "By", "Memory of the device in use.", _GPU)
GPU_MEMORY_LIMIT: Final = Metric("hw.gpu.memory.limit", "gauge", "By", "Memory of the device.", _GPU)
HW_TEMPERATURE: Final = Metric("hw.temperature", "gauge", "Cel", "Temperature of the device.", _GPU)
HW_POWER: Final = Metric(
    "hw.power",
    "gauge",
    "W",
    "Power of the device as NVML reports it; `kind` says over which window: instant, average, or none as documented "
    "for the product.",
    (*_GPU, "kind"),
)
HW_ENERGY: Final = Metric(
    "hw.energy", "counter", "J", "Energy counter of the device, at the moments when it was seen to move.", _GPU
)
ENERGY_TICK_GAP: Final = Metric(
    "stepmeter.energy.tick_gap",
    "gauge",
    "s",
    "At the times of hw.energy: the counter moved at most so long before.",
    _GPU,
)
ENERGY_FAULTS: Final = Metric(
    "hw.errors", "counter", "{error}", "Energy and power queries that failed; `kind` is the reason.", (*_GPU, "kind")
)
ENERGY_POWER_LIMIT: Final = Metric(
    "stepmeter.energy.power_limit", "gauge", "W", "Enforced power limit of the device, which bounds its energy.", _GPU
)
ENERGY_OTHER_PROCESSES: Final = Metric(
    "stepmeter.energy.other_processes",
    "gauge",
    "{process}",
    "Processes on the device that are not of the run; looked for once a minute.",
    _GPU,
)
ENERGY_INSTANCE: Final = Metric(
    "stepmeter.energy.instance",
    "gauge",
    "1",
    "The MIG instance `hw.id` is a part of the GPU `kind`, by whose energy it is measured.",
    (*_GPU, "kind"),
)
ENERGY_THROTTLED: Final = Metric(
    "stepmeter.energy.throttled",
    "gauge",
    "1",
    "1 while power or heat holds the device's clocks down, else 0; read once a second.",
    _GPU,
)

_ENGINE = ("rank", "run", "engine", "model")
INFERENCE_PROMPT_TOKENS: Final = Metric(
    "stepmeter.inference.prompt_tokens", "counter", "{token}", "Prompt tokens that the server took in.", _ENGINE
)
INFERENCE_GENERATION_TOKENS: Final = Metric(
    "stepmeter.inference.generation_tokens", "counter", "{token}", "Tokens that the server generated.", _ENGINE
)
INFERENCE_CACHE_QUERIES: Final = Metric(
    "stepmeter.inference.prefix_cache.queries", "counter", "{token}", "Tokens looked up in the prefix cache.", _ENGINE
)
INFERENCE_CACHE_HITS: Final = Metric(
    "stepmeter.inference.prefix_cache.hits", "counter", "{token}", "Tokens found in the prefix cache.", _ENGINE
)
INFERENCE_PREFILL_TIME: Final = Metric(
    "stepmeter.inference.prefill.time", "counter", "s", "Time that requests spent in prefill.", _ENGINE
)
INFERENCE_DECODE_TIME: Final = Metric(
    "stepmeter.inference.decode.time", "counter", "s", "Time that requests spent in decode.", _ENGINE
)
INFERENCE_SCRAPE_FAILURES: Final = Metric(
    "stepmeter.inference.scrape.failures",
    "counter",
    "{scrape}",
    "Readings of the server's metrics that failed; `kind` is the reason.",
    ("rank", "run", "engine", "kind"),
)

METRICS: Final = (
    STEPS,
    SAMPLES,
    TOKENS,
    STEP_DURATION,
    PHASE_DURATION,
    MEMORY_PEAK,
    DROPPED,
    SPAN_DURATION,
    NONFINITE,
    SELF_CPU_TIME,
    PROCESS_CPU_TIME,
    PROCESS_MEMORY_USAGE,
    SYSTEM_CPU_UTILIZATION,
    SYSTEM_CPU_LOGICAL_COUNT,
    SYSTEM_MEMORY_USAGE,
    SYSTEM_MEMORY_LIMIT,
    GPU_UTILIZATION,
    GPU_MEMORY_USAGE,
    GPU_MEMORY_LIMIT,
    HW_TEMPERATURE,
    HW_POWER,
    HW_ENERGY,
    ENERGY_TICK_GAP,
    ENERGY_FAULTS,
    ENERGY_POWER_LIMIT,
    ENERGY_OTHER_PROCESSES,
    ENERGY_INSTANCE,
    ENERGY_THROTTLED,
    INFERENCE_PROMPT_TOKENS,
    INFERENCE_GENERATION_TOKENS,
    INFERENCE_CACHE_QUERIES,
    INFERENCE_CACHE_HITS,
    INFERENCE_PREFILL_TIME,
    INFERENCE_DECODE_TIME,
    INFERENCE_SCRAPE_FAILURES,
)
"""Every metric of ours."""

METRIC_BY_NAME: Final = {metric.name: metric for metric in METRICS}
"""The same, to look a name up."""
