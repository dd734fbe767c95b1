"""From captures to span records and metrics, with explicit times, on the drain thread."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import stepmeter
from stepmeter.capture.clock import ClockAnchor
from stepmeter.capture.facts import StepFacts
from stepmeter.capture.identity import Identity
from stepmeter.capture.step import StepMemory, StepTimeBatch
from stepmeter.capture.step_context import step_ids
from stepmeter.conventions import SCHEMA_URL, SCOPE_NAME, attributes, metrics, phases, spans
from stepmeter.telemetry.aggregate import Aggregator
from stepmeter.units import seconds

SCOPE = InstrumentationScope(SCOPE_NAME, stepmeter.__version__, SCHEMA_URL)
_SPAN_ID_MASK = (1 << 64) - 1
_CHILD_STRIDE = 0x9E3779B97F4A7C15  # odd, so that children of one step never share an id
_PHASE_KEYS = {
    phase: tuple(attributes.phase_attribute(phase, suffix).key for suffix in ("cpu_ns", "gpu_ns", "count"))
    for phase in phases.PHASES
}

Value = str | int | float | bool


class SpanRecord(NamedTuple):
    """A finished span before it becomes the SDK's object or protobuf bytes.

    Attributes:
        name: Its name.
        trace_id: 16 bytes.
        span_id: 8 bytes.
        parent_id: 8 bytes, or empty for a root.
        start_ns: Unix time in ns.
        end_ns: Unix time in ns.
        facts: Its attributes.
    """

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    start_ns: int
    end_ns: int
    facts: dict[str, Value]


@dataclass(frozen=True, slots=True)
class Origin:
    """Whose telemetry it is.

    Attributes:
        resource: The resource of every span and metric.
        run_id: Identity of the run; part of every trace id, so that ranks share a step's trace.
        run_name: Name of the run; an attribute of data points, so that a dashboard can choose one.
        anchor: Places monotonic times on the wall axis.
    """

    resource: Resource
    run_id: str
    run_name: str
    anchor: ClockAnchor


def step_spans(
    batch: StepTimeBatch,
    facts: StepFacts,
    memory: StepMemory | None,
    origin: Origin,
    *,
    children: bool,
    wait_ns: int | None = None,
) -> list[SpanRecord]:
    """The span of a step and, on request, one child for each of its regions.

    Ranks agree on a step's trace without a word between them, and a batch sent twice is the same span.

    Args:
        batch: The completed step.
        facts: What its regions add up to.
        memory: Its allocator peaks, or None.
        origin: Whose it is.
        children: Whether to make the phase spans.
        wait_ns: How long backward waited for other ranks, where this step brings a new value.

    Returns:
        The step span, then its children.
    """
    identity = batch.identity
    trace_id, span_id = step_ids(origin.run_id, identity.attempt, identity.rank, batch.step)
    unix_ns_of = origin.anchor.unix_ns_of
    times_ns = (unix_ns_of(batch.start_ns), unix_ns_of(batch.end_ns))
    known = _facts_of(batch, facts, memory, origin)
    if wait_ns is not None:
        known[attributes.BACKWARD_WAIT.key] = wait_ns
    step = SpanRecord(spans.STEP_SPAN.name, trace_id, span_id, b"", *times_ns, known)
    if not children:
        return [step]
    gpu_ns = facts.regions_gpu_ns or (None,) * len(batch.regions)
    return [step, *(_phase_span(number, batch, ns, step, origin) for number, ns in enumerate(gpu_ns))]


def run_span(identity: Identity, origin: Origin, at_ns: int, outcome: str) -> SpanRecord:
    """A short span that marks the start or the end of a run.

    Args:
        identity: Which attempt and rank.
        origin: Whose it is.
        at_ns: When, monotonic.
        outcome: `started`, `completed`, `failed` or `interrupted`.

    Returns:
        The span; all ranks' are in one trace.
    """
    trace_id = blake2b(f"{origin.run_id}\0{identity.attempt}\0run".encode(), digest_size=16).digest()
    span_id = blake2b(f"{outcome}\0{identity.rank}".encode(), key=trace_id, digest_size=8).digest()
    facts: dict[str, Value] = {
        attributes.ATTEMPT.key: identity.attempt,
        attributes.RANK.key: identity.rank,
        attributes.OUTCOME.key: outcome,
    }
    unix_ns = origin.anchor.unix_ns_of(at_ns)
    return SpanRecord(spans.RUN_SPAN.name, trace_id, span_id, b"", unix_ns, unix_ns, facts)


def record_step(
    batch: StepTimeBatch, facts: StepFacts, memory: StepMemory | None, run_name: str, into: Aggregator
) -> None:
    """Add a step to the metrics.

    Args:
        batch: The completed step.
        facts: What its regions add up to.
        memory: Its allocator peaks, or None.
        run_name: Name of the run.
        into: The process's series.
    """
    base = point_attributes(batch.identity, run_name)
    into.add(metrics.STEPS, base, 1)
    if batch.samples is not None:
        into.add(metrics.SAMPLES, base, batch.samples)
    if batch.tokens is not None:
        into.add(metrics.TOKENS, base, batch.tokens)
    _record_clock("cpu", facts, base, into)
    if facts.traced_gpu_ns is not None:
        _record_clock("gpu", facts, base, into)
    if memory is not None:
        hw_id = (("hw.id", memory.hw_id),) if memory.hw_id else ()
        into.gauge(metrics.MEMORY_PEAK, (*base, *hw_id, ("kind", "allocated")), memory.peak_allocated_bytes)
        into.gauge(metrics.MEMORY_PEAK, (*base, *hw_id, ("kind", "reserved")), memory.peak_reserved_bytes)


def point_attributes(identity: Identity, run_name: str) -> tuple[tuple[str, str | int], ...]:
    """The attributes that every data point of ours carries.

    Args:
        identity: Who measured.
        run_name: Name of the run.

    Returns:
        Pairs of key and value.
    """
    return (("rank", identity.rank), ("run", run_name))


def _record_clock(clock: str, facts: StepFacts, base: tuple[tuple[str, str | int], ...], into: Aggregator) -> None:
    traced_ns = facts.traced_cpu_ns if clock == "cpu" else facts.traced_gpu_ns
    input_wait_ns = 0
    for phase, measured in facts.phases.items():
        duration_ns = measured.cpu_ns if clock == "cpu" else measured.gpu_ns
        if duration_ns is None:
            continue
        if phase == phases.INPUT_WAIT:
            input_wait_ns = duration_ns
        series = (*base, ("clock", clock), ("phase", phase))
        into.distribution(metrics.PHASE_DURATION, series).record(seconds(duration_ns))
    if traced_ns is not None:
        series = (*base, ("clock", clock))
        into.distribution(metrics.STEP_DURATION, series).record(seconds(traced_ns + input_wait_ns))


def _facts_of(batch: StepTimeBatch, facts: StepFacts, memory: StepMemory | None, origin: Origin) -> dict[str, Value]:
    identity = batch.identity
    known: dict[str, Value | None] = {
        attributes.STEP.key: batch.step,
        attributes.ATTEMPT.key: identity.attempt,
        attributes.RANK.key: identity.rank,
        attributes.LOCAL_RANK.key: identity.local_rank,
        attributes.NODE_RANK.key: identity.node_rank,
        attributes.WORLD_SIZE.key: identity.world_size,
        attributes.STRATEGY.key: identity.strategy,
        attributes.HW_ID.key: identity.hw_id,
        attributes.MICROBATCHES.key: batch.microbatches,
        attributes.SAMPLES.key: batch.samples,
        attributes.TOKENS.key: batch.tokens,
        attributes.TRACED_CPU.key: facts.traced_cpu_ns,
        attributes.TRACED_GPU.key: facts.traced_gpu_ns,
        attributes.DEVICE_START.key: _unix_ns(facts.device_start_ns, origin),
        attributes.DEVICE_END.key: _unix_ns(facts.device_end_ns, origin),
        attributes.WARMUP.key: batch.warmup or None,
    }
    if memory is not None:
        known[attributes.PEAK_ALLOCATED.key] = memory.peak_allocated_bytes
        known[attributes.PEAK_RESERVED.key] = memory.peak_reserved_bytes
    for phase, measured in facts.phases.items():
        cpu_key, gpu_key, count_key = _PHASE_KEYS[phase]
        known[cpu_key] = measured.cpu_ns
        known[gpu_key] = measured.gpu_ns
        known[count_key] = measured.count
    return {key: value for key, value in known.items() if value is not None}


def _unix_ns(monotonic_ns: int | None, origin: Origin) -> int | None:
    return None if monotonic_ns is None else origin.anchor.unix_ns_of(monotonic_ns)


def _phase_span(
    number: int, batch: StepTimeBatch, gpu_ns: int | None, parent: SpanRecord, origin: Origin
) -> SpanRecord:
    phase_index, start_ns, end_ns, _ = batch.regions[number]
    phase = phases.PHASES[phase_index]
    own_id = (int.from_bytes(parent.span_id, "big") + (number + 1) * _CHILD_STRIDE) & _SPAN_ID_MASK or 1
    unix_ns_of = origin.anchor.unix_ns_of
    facts: dict[str, Value] = {attributes.PHASE.key: phase, attributes.STEP.key: batch.step}
    if gpu_ns is not None:
        facts[attributes.PHASE_GPU.key] = gpu_ns
    return SpanRecord(
        phase,
        parent.trace_id,
        own_id.to_bytes(8, "big"),
        parent.span_id,
        unix_ns_of(start_ns),
        unix_ns_of(end_ns),
        facts,
    )
