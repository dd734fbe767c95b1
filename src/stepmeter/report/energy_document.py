"""Energies as JSON documents: the trajectory with the decision record's field names, training beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from stepmeter.analysis.energy.model import (
    GAIN_ERROR_SHARE,
    NO_RAPL,
    Bases,
    DeviceEnergy,
    RankEnergy,
    Scope,
    TrainingEnergy,
)
from stepmeter.analysis.energy.trajectory import CLOCK_ASSUMPTION, StepEnergy, Trajectory, Withheld

Document = dict[str, Any]


def trajectory_document(found: Trajectory | Withheld) -> Document:
    """Write a trajectory as `{"trajectory": …}`.

    Args:
        found: The trajectory, or why there is none.

    Returns:
        The document; when there is none `trajectory` is null, beside `withheld` and `steps` with times and tokens.
    """
    if isinstance(found, Withheld):
        steps = [_step(one) for one in found.steps]
        return {"trajectory": None, "withheld": found.reason, "steps": steps, **_host(found)}
    return {"trajectory": _trajectory(found), "withheld": None}


def _trajectory(found: Trajectory) -> Document:
    steps_tokens = sum(one.generation_tokens_delta or 0 for one in found.steps)
    total_tokens = found.total_generation_tokens
    return {
        "steps": [_step(one) for one in found.steps],
        "total_energy_mj": found.total_energy_mj,
        "total_generation_tokens": total_tokens,
        "trajectory_tokens_per_joule": found.tokens_per_joule,
        "llm_energy_mj": found.energy_of("llm_call"),
        "tool_energy_mj": found.energy_of("tool"),
        "span_energy_mj": found.energy_of("span"),
        "unattributed_energy_mj": found.unattributed_energy_mj,
        "run_duration_ns": found.run_duration_ns,
        "unattributed_duration_ns": found.unattributed_duration_ns,
        **_host(found),
        "dropped_steps": [asdict(one) for one in found.dropped_steps],
        "basis": "power_integral",
        "is_measurement": found.is_measurement,
        "apportioned_by": found.apportioned_by,
        "anchor_unix_ns": found.anchor_unix_ns,
        "anchor_source": found.anchor_source,
        "clock_assumption": CLOCK_ASSUMPTION,
        "gain_error_share": GAIN_ERROR_SHARE,
        "devices": [{"hw_id": hw_id, **_bases(bases)} for hw_id, bases in found.bases],
        "tokens": {
            "in_steps": None if total_tokens is None else steps_tokens,
            "outside_steps": None if total_tokens is None else total_tokens - steps_tokens,
            "total": total_tokens,
            "withheld": dict(found.counters.withheld),
        },
        "phase_share": None if found.phase_share is None else {**asdict(found.phase_share), "method": "apportionment"},
    }


def _host(found: Trajectory | Withheld) -> Document:
    return {"host_total_mj": found.host_total_mj, "host_reason": NO_RAPL if found.host_total_mj is None else None}


def _step(one: StepEnergy) -> Document:
    step = one.step
    return {
        "step_id": step.step_id,
        "kind": step.kind,
        "start_elapsed_ns": one.start_elapsed_ns,
        "end_elapsed_ns": one.end_elapsed_ns,
        "samples_in_window": one.samples_in_window,
        "energy_mj": one.energy_mj,
        "generation_tokens_delta": one.generation_tokens_delta,
        "prompt_tokens_delta": one.prompt_tokens_delta,
        "cache_hits_delta": one.cache_hits_delta,
        "cache_queries_delta": one.cache_queries_delta,
        "prefill_time_ns_delta": one.prefill_time_ns_delta,
        "decode_time_ns_delta": one.decode_time_ns_delta,
        "tokens_per_joule": one.tokens_per_joule,
        "cache_hit_rate": one.cache_hit_rate,
        "estimate": None if one.estimate is None else asdict(one.estimate),
        "host": None if one.host is None else asdict(one.host),
        "name": step.name,
        "model": step.model,
        "usage_input_tokens": step.input_tokens,
        "usage_output_tokens": step.output_tokens,
        "span_id": step.span_id,
        "piece": step.piece,
    }


def _bases(bases: Bases) -> Document:
    return {
        "counter_mj": bases.counter_mj,
        "power_integral_mj": bases.power_integral_mj,
        "integral_to_counter": bases.ratio,
        "bases_differ": bases.differ,
    }


def training_document(found: TrainingEnergy, faults: dict[str, str] | None = None) -> Document:
    """Write the energy of training steps as JSON.

    Args:
        found: The energies.
        faults: Why queries failed, by device.

    Returns:
        The document; figures that are not there are null.
    """
    return {
        "reason": found.reason,
        "mj_per_step": found.mj_per_step,
        "mj_per_sample": found.mj_per_sample,
        "mj_per_token": found.mj_per_token,
        "idle_share": found.idle_share,
        "gain_error_share": GAIN_ERROR_SHARE,
        "devices": [_device(one, (faults or {}).get(one.hw_id)) for one in found.devices],
        "ranks": _ranks(found.ranks, {device.hw_id: device.scope for device in found.devices}),
        "host": {
            "reason": found.host_reason,
            "mj_per_step": found.host_mj_per_step,
            "devices": [_device(one, None) for one in found.host_devices],
            "ranks": _ranks(found.host_ranks, {}),
        },
    }


def _device(one: DeviceEnergy, faults: str | None) -> Document:
    return {
        **{key: value for key, value in asdict(one).items() if key != "bases"},
        **_bases(one.bases),
        "scope": one.scope,
        "faults": faults,
    }


def _ranks(ranks: Sequence[RankEnergy], scopes: Mapping[str, Scope]) -> list[Document]:
    return [
        {
            **asdict(one),
            "mj_per_step": one.total_mj / one.steps if one.steps else None,
            "mj_per_sample": one.total_mj / one.samples if one.samples else None,
            "mj_per_token": one.total_mj / one.tokens if one.tokens else None,
            "scope": scopes.get(one.hw_id, "host"),
            "phases": "apportioned by time",
        }
        for one in ranks
    ]
