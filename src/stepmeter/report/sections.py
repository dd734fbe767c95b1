"""The sections of the summary, all of one outer shape; null is never measured, 0.0 is measured zero."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stepmeter.analysis.step_time.model import METRICS, SHARE_COMPONENTS, StepTimeValues
from stepmeter.analysis.step_time.source import RankIdentity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepmeter.analysis.diagnosis.model import Issue
    from stepmeter.analysis.diagnosis.primary import PrimaryDiagnosis
    from stepmeter.analysis.step_time.model import StepTimeWindow

Json = dict[str, Any]


def step_time_section(window: StepTimeWindow, issues: Sequence[Issue], card: str) -> Json:
    """Project the analyzed window.

    Args:
        window: The window of the summary profile.
        issues: Its findings, one or more.
        card: The section as text.

    Returns:
        The section.
    """
    ranks = {str(rank): _row(window, rank) for rank in window.expected_ranks}
    return {
        "metadata": metadata(window, METRICS),
        **findings(issues),
        "global": {
            "index_by": "global_rank",
            "window": _window(window),
            "average": {name: _statistic(window, name, "average_ms") for name in METRICS},
            "median": {name: _indexed(window, name, "representative") for name in METRICS},
            "worst": {name: _indexed(window, name, "worst") for name in METRICS},
            "interval": {
                name: {"low": _statistic(window, name, "low_ms"), "high": _statistic(window, name, "high_ms")}
                for name in METRICS
            },
            "share": {name: _share(window, name) for name in SHARE_COMPONENTS},
        },
        "groups": {"by": "global_rank", "rows": ranks},
        "units": dict.fromkeys(METRICS, "ms"),
        "card": card,
    }


def primary_json(primary: PrimaryDiagnosis) -> Json:
    """Project the primary diagnosis."""
    return {
        "kind": primary.kind,
        "status": primary.status,
        "severity": primary.severity,
        "section": primary.section,
        "scope": "performance",
        "summary": primary.summary,
        "action": primary.action,
        "evidence": {"type": primary.evidence_type, **_tree(primary.evidence)},
    }


def issue_json(issue: Issue) -> Json:
    """Project a finding; every key is there, null when it does not apply."""
    return {
        "kind": issue.kind,
        "status": issue.status,
        "severity": issue.severity,
        "summary": issue.summary,
        "action": issue.action,
        "metric": issue.metric,
        "phase": issue.phase,
        "score": finite(issue.score),
        "share": finite(issue.share),
        "skew": finite(issue.skew),
        "ranks": list(issue.ranks),
        "evidence": _tree(issue.evidence),
    }


def finite(value: float | None) -> float | None:
    """A number that a reader of JSON can take; anything else is null."""
    return value if value is not None and math.isfinite(value) else None


def run_mode(window: StepTimeWindow) -> str:
    """Whether the run had one node, several, or no steps at all."""
    nodes = observed_nodes(window)
    if not nodes:
        return "no_data"
    return "single_node" if nodes == 1 else "multi_node"


def observed_nodes(window: StepTimeWindow) -> int:
    """How many nodes ranks reported from."""
    return len({(identity.node_rank, identity.host) for identity in window.identities.values()})


def observed_gpus(window: StepTimeWindow) -> int:
    """How many devices ranks reported from."""
    return len({identity.hw_id for identity in window.identities.values() if identity.hw_id})


def findings(issues: Sequence[Issue]) -> Json:
    """Project a section's findings, the first of which is its diagnosis."""
    projected = [issue_json(issue) for issue in issues]
    return {"diagnosis": projected[0], "issues": projected}


def metadata(window: StepTimeWindow, metric_names: Sequence[str]) -> Json:
    """Project what is known about the run.

    Args:
        window: The window of step time.
        metric_names: The section's metrics; without any it has no data.

    Returns:
        The metadata of a section.
    """
    coverage, observed = window.coverage, observed_nodes(window)
    expected = coverage.nodes_expected
    has_data = bool(metric_names) and bool(window.steps)
    return {
        "mode": run_mode(window) if has_data else "no_data",
        "duration_s": finite(coverage.duration_s) if has_data else None,
        "samples": len(window.steps) * len(window.ranks) if metric_names else 0,
        "nodes_expected": expected,
        "nodes_observed": observed,
        "nodes_coverage": observed / expected if expected else None,
        "nodes_partial": observed < expected if expected else None,
        "gpus_observed": observed_gpus(window),
        "global_ranks_seen": sorted(window.identities),
        "global_ranks_used": list(window.ranks) if metric_names else [],
        "training_total_steps": coverage.recorded_steps,
        "training_latest_step": coverage.latest_step,
        "section_metric_names": list(metric_names),
    }


def _window(window: StepTimeWindow) -> Json:
    coverage, steps = window.coverage, window.steps
    return {
        "kind": "tail",
        "alignment": "common_steps",
        "clock": window.clock if steps else None,
        "steps_analyzed": len(steps),
        "start_step": steps[0] if steps else None,
        "end_step": steps[-1] if steps else None,
        "completed_step": coverage.completed_step,
        "window_size": window.window_size,
        "coverage": {
            "expected_steps": coverage.expected_steps,
            "steps_used": coverage.steps_used,
            "world_size": coverage.world_size,
            "ranks_present": coverage.ranks_present,
            "warmup_steps_left_out": coverage.warmup_left_out,
            "gpu_steps_left_out": coverage.gpu_pairs_lost,
            "missing_steps": {str(rank): count for rank, count in coverage.missing_steps.items()},
            "dropped": dict(coverage.dropped),
        },
    }


def no_statistics(names: Sequence[str]) -> Json:
    """The intervals and shares of a section that has none; every key is there."""
    return {"interval": {name: {"low": None, "high": None} for name in names}, "share": {}}


def no_window() -> Json:
    """The window of a section whose rows are no steps; every key is there."""
    return {
        "kind": None,
        "alignment": "none",
        "clock": None,
        "steps_analyzed": 0,
        "start_step": None,
        "end_step": None,
        "completed_step": None,
        "window_size": None,
        "coverage": None,
    }


def _statistic(window: StepTimeWindow, name: str, field: str) -> float | None:
    metric = window.metrics.get(name)
    return None if metric is None else finite(getattr(metric, field))


def _indexed(window: StepTimeWindow, name: str, which: str) -> Json:
    metric = window.metrics.get(name)
    return {
        "value": _statistic(window, name, f"{which}_ms"),
        "idx": None if metric is None else getattr(metric, f"{which}_rank"),
    }


def _share(window: StepTimeWindow, name: str) -> Json:
    share = window.shares.get(name)
    fields = ("mean", "typical", "low", "high")
    return {field: None if share is None else finite(getattr(share, field)) for field in fields}


def _row(window: StepTimeWindow, rank: int) -> Json:
    identity = window.identities.get(rank, RankIdentity(rank))
    average = window.facts(rank).average if rank in window.ranks else StepTimeValues()
    return {
        "identity": {
            "global_rank": rank,
            "local_rank": identity.local_rank,
            "node_rank": identity.node_rank,
            "hostname": identity.host,
            "world_size": identity.world_size,
            "hw_id": identity.hw_id,
        },
        "metrics": {name: finite(average.get(name)) for name in METRICS},
    }


def _tree(value: Any) -> Any:
    """Evidence as JSON takes it: keys as text, sequences as lists, numbers finite."""
    if isinstance(value, Mapping):
        return {str(key): _tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tree(item) for item in value]
    return finite(value) if isinstance(value, float) else value
