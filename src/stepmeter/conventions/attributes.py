"""Attributes of spans and data points, each declared once with its type and, where it has one, its column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from stepmeter.conventions.phases import PHASES

AttributeType = Literal["int", "double", "string", "boolean"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute name.

    Attributes:
        key: The name on the wire.
        type: The type of its value on the wire.
        brief: What it says, in one sentence.
        unit: The unit of a numeric value, in UCUM, or "".
        column: The column of table `steps` that holds it, or None.
        required: Whether every span of its kind carries it.
    """

    key: str
    type: AttributeType
    brief: str
    unit: str = ""
    column: str | None = None
    required: bool = False


STEP: Final = Attribute(
    "stepmeter.step",
    "int",
    "Number of the step in its process; the first is 1.",
    "{step}",
    "step",
    required=True,
)
ATTEMPT: Final = Attribute(
    "stepmeter.attempt",
    "int",
    "Which start of the run this is; the first is 0.",
    "",
    "attempt",
    required=True,
)
RANK: Final = Attribute("stepmeter.rank", "int", "Global rank.", "", "rank", required=True)
LOCAL_RANK: Final = Attribute("stepmeter.local_rank", "int", "Rank within its node.", "", "local_rank")
NODE_RANK: Final = Attribute("stepmeter.node_rank", "int", "Rank of the node.", "", "node_rank")
WORLD_SIZE: Final = Attribute("stepmeter.world_size", "int", "Number of ranks.", "", "world_size", required=True)
LOCAL_WORLD_SIZE: Final = Attribute("stepmeter.local_world_size", "int", "Number of ranks on this node.")
STRATEGY: Final = Attribute(
    "stepmeter.strategy", "string", "How ranks share the work: single, ddp, fsdp, …", "", "strategy"
)
MICROBATCHES: Final = Attribute(
    "stepmeter.microbatches", "int", "Batches fetched for the step.", "{batch}", "microbatches"
)
TRACED_CPU: Final = Attribute(
    "stepmeter.traced.cpu_ns",
    "int",
    "From the end of the first input wait to the end of the step, less the input waits inside, on the CPU clock.",
    "ns",
    "traced_cpu_ns",
    required=True,
)
TRACED_GPU: Final = Attribute("stepmeter.traced.gpu_ns", "int", "The same on the device clock.", "ns", "traced_gpu_ns")
DEVICE_START: Final = Attribute(
    "stepmeter.device.start_ns", "int", "Start of the step's device work, Unix time.", "ns", "device_start_ns"
)
DEVICE_END: Final = Attribute(
    "stepmeter.device.end_ns", "int", "End of the step's device work, Unix time.", "ns", "device_end_ns"
)
SAMPLES: Final = Attribute(
    "stepmeter.samples", "int", "Samples in the step, where the batch shows them.", "{sample}", "samples"
)
TOKENS: Final = Attribute(
    "stepmeter.tokens", "int", "Tokens in the step, where the batch shows them.", "{token}", "tokens"
)
PEAK_ALLOCATED: Final = Attribute(
    "stepmeter.memory.peak_allocated",
    "int",
    "Peak of the memory that tensors of the step held on its device.",
    "By",
    "peak_allocated_bytes",
)
PEAK_RESERVED: Final = Attribute(
    "stepmeter.memory.peak_reserved",
    "int",
    "Peak of the memory that the caching allocator held on the step's device.",
    "By",
    "peak_reserved_bytes",
)
BACKWARD_WAIT: Final = Attribute(
    "stepmeter.backward.wait_ns",
    "int",
    "Time from this rank's own gradients being ready to the end of their exchange, in the backward that DDP last "
    "timed; on steps in which a new value was found.",
    "ns",
)
WARMUP: Final = Attribute(
    "stepmeter.warmup",
    "boolean",
    "The step compiled, initialised or was the first of its process.",
    "",
    "warmup",
)
PHASE: Final = Attribute("stepmeter.phase", "string", "Phase of a child of a step.", "", None, required=True)
PHASE_GPU: Final = Attribute("stepmeter.gpu_ns", "int", "Duration of a region on the device clock.", "ns")
OUTCOME: Final = Attribute("stepmeter.outcome", "string", "How a run went: started, completed, failed, interrupted.")
EXIT_CODE: Final = Attribute("stepmeter.exit_code", "int", "Exit code of the run's command.")
HW_ID: Final = Attribute("hw.id", "string", "UUID of the GPU.", "", "hw_id")
SPAN_PATH: Final = Attribute(
    "stepmeter.span.path", "string", "Names of the user spans around it and its own, joined with /.", required=True
)
THREAD_ID: Final = Attribute("thread.id", "int", "Thread in which a user span started.", required=True)
THREAD_NAME: Final = Attribute("thread.name", "string", "Name of that thread.", required=True)
ERROR_TYPE: Final = Attribute("error.type", "string", "Class of the exception that ended the span.")


def phase_attribute(phase: str, suffix: Literal["cpu_ns", "gpu_ns", "count"]) -> Attribute:
    """The attribute of a step span that sums one phase up.

    Args:
        phase: One of `PHASES`.
        suffix: `cpu_ns` for time on the CPU clock, `gpu_ns` on the device clock, `count` for the regions seen.

    Returns:
        The attribute; it is absent from the span when the phase was not observed.
    """
    brief = {
        "cpu_ns": f"Time in `{phase}` on the CPU clock.",
        "gpu_ns": f"Time in `{phase}` on the device clock.",
        "count": f"Regions of `{phase}` in the step.",
    }[suffix]
    unit = "{region}" if suffix == "count" else "ns"
    return Attribute(f"stepmeter.phase.{phase}.{suffix}", "int", brief, unit, f"{phase}_{suffix}")


PHASE_ATTRIBUTES: Final = tuple(
    phase_attribute(phase, suffix) for phase in PHASES for suffix in ("cpu_ns", "gpu_ns", "count")
)

STEP_ATTRIBUTES: Final = (
    STEP,
    ATTEMPT,
    RANK,
    LOCAL_RANK,
    NODE_RANK,
    WORLD_SIZE,
    STRATEGY,
    HW_ID,
    MICROBATCHES,
    SAMPLES,
    TOKENS,
    TRACED_CPU,
    TRACED_GPU,
    *PHASE_ATTRIBUTES,
    PEAK_ALLOCATED,
    PEAK_RESERVED,
    DEVICE_START,
    DEVICE_END,
    WARMUP,
    BACKWARD_WAIT,
)
"""Everything a `step` span carries."""
