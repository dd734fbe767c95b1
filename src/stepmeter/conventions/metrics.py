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


@dataclass(frozen=True, slots=True)
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
SELF_CPU_TIME: Final = Metric(
    "stepmeter.self.cpu_time", "counter", "s", "CPU time that stepmeter's own threads took in this process."
)

METRICS: Final = (
    STEPS,
    SAMPLES,
    TOKENS,
    STEP_DURATION,
    PHASE_DURATION,
    MEMORY_PEAK,
    DROPPED,
    SELF_CPU_TIME,
)
