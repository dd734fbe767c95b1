"""Metrics to rows: numbers become `metric_points`, everything with buckets or quantiles `histogram_points`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector.decode import (
    MAX_TIME_NS,
    ResourceFacts,
    Row,
    Rows,
    RunKey,
    attributes_of,
    finite,
    has_type,
    resource_facts,
    to_json,
    typed,
)
from stepmeter.collector.samples import SAMPLED, Samples
from stepmeter.conventions.attributes import HW_ID, RANK, Attribute
from stepmeter.store.schema import HISTOGRAM_POINTS, METRIC_POINTS, RESOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TEMPORALITIES: Final = (None, "delta", "cumulative")
_POINT_RANK: Final = Attribute("rank", "int", "Global rank, as data points carry it.")


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a data point stands: its run, resource, scope and metric."""

    run: RunKey
    facts: ResourceFacts
    scope_name: str | None
    scope_version: str | None
    metric: Any


def reject_points(message: Any) -> tuple[int, str]:
    """Count the data points of a request that the store can't hold.

    Args:
        message: An `ExportMetricsServiceRequest`.

    Returns:
        Their number, and what is wrong with the first of them.
    """
    problems = [
        problem
        for resource_metrics in message.resource_metrics
        for scope_metrics in resource_metrics.scope_metrics
        for metric in scope_metrics.metrics
        for point in points(metric)
        if (problem := _problem(point))
    ]
    return len(problems), problems[0] if problems else ""


def decode_points(message: Any, default_run: RunKey, rows: Rows) -> None:
    """Turn the data points of a request into rows; those that `reject_points` counts are left out.

    Args:
        message: An `ExportMetricsServiceRequest`.
        default_run: The run of resources that name none.
        rows: Where the rows go.
    """
    samples = Samples()
    for resource_metrics in message.resource_metrics:
        facts = resource_facts(resource_metrics.resource)
        run = facts.run or default_run
        rows.of(run, RESOURCES).append((run.run_id, *facts.row))
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                scope = scope_metrics.scope
                source = _Source(run, facts, scope.name or None, scope.version or None, metric)
                _decode_metric(source, rows)
                if metric.name in SAMPLED and metric.WhichOneof("data") in {"gauge", "sum"}:
                    _take_samples(source, samples)
    samples.into(rows)


def _take_samples(source: _Source, samples: Samples) -> None:
    for point in points(source.metric):
        if not _problem(point):
            attributes = attributes_of(point.attributes)
            rank = _rank(dict(attributes), source.facts)
            samples.add(source.run, source.facts, source.metric.name, point, attributes, rank)


def _decode_metric(source: _Source, rows: Rows) -> None:
    kind = source.metric.WhichOneof("data")
    if kind is None:
        return
    table = METRIC_POINTS if kind in {"gauge", "sum"} else HISTOGRAM_POINTS
    values = _VALUES[kind]
    into = rows.of(source.run, table)
    for point in points(source.metric):
        if not _problem(point):
            into.append(_row(source, kind, point, values(point)))


def points(metric: Any) -> Iterator[Any]:
    """The data points of a metric of any kind.

    Args:
        metric: The OTLP message.

    Returns:
        Its data points.
    """
    kind = metric.WhichOneof("data")
    return iter(getattr(metric, kind).data_points) if kind else iter(())


def _problem(point: Any) -> str | None:
    if point.time_unix_nano > MAX_TIME_NS or point.start_time_unix_nano > MAX_TIME_NS:
        return "data point with a time after the year 2262"
    return None


def _row(source: _Source, kind: str, point: Any, values: Row) -> Row:
    metric, facts = source.metric, source.facts
    data = getattr(metric, kind)
    attributes = attributes_of(point.attributes)
    return (
        source.run.run_id,
        metric.name,
        metric.unit or None,
        metric.description or None,
        kind,
        _temporality(data, kind),
        data.is_monotonic if kind == "sum" else None,
        point.start_time_unix_nano or None,
        point.time_unix_nano,
        _rank(attributes, facts),
        attributes.pop(HW_ID.key) if has_type(attributes.get(HW_ID.key), HW_ID) else typed(facts.attributes, HW_ID),
        facts.service_name,
        source.scope_name,
        point.flags,
        *values,
        facts.resource_id,
        to_json(attributes),
        source.scope_version,
        to_json([_exemplar(exemplar) for exemplar in point.exemplars]) if kind != "summary" else None,
    )


def _exemplar(exemplar: Any) -> dict[str, Any]:
    kind = exemplar.WhichOneof("value")
    return {
        "time_ns": exemplar.time_unix_nano,
        "value": finite(getattr(exemplar, kind)) if kind else None,
        "trace_id": exemplar.trace_id.hex(),
        "span_id": exemplar.span_id.hex(),
        "attributes": attributes_of(exemplar.filtered_attributes),
    }


def _temporality(data: Any, kind: str) -> str | None:
    if kind in {"gauge", "summary"}:
        return None
    number = data.aggregation_temporality
    return _TEMPORALITIES[number] if 0 <= number < len(_TEMPORALITIES) else None


def _rank(attributes: dict[str, Any], facts: ResourceFacts) -> int | None:
    for attribute in (_POINT_RANK, RANK):
        if has_type(attributes.get(attribute.key), attribute):
            rank: int = attributes.pop(attribute.key)
            return rank
    at_start: int | None = typed(facts.attributes, RANK)
    return at_start


def _number(point: Any) -> Row:
    kind = point.WhichOneof("value")
    return (
        point.as_int if kind == "as_int" else None,
        point.as_double if kind == "as_double" else None,
    )


def _optional(point: Any, field: str) -> Any:
    return getattr(point, field) if point.HasField(field) else None


def _moments(point: Any) -> Row:
    return (point.count, _optional(point, "sum"), _optional(point, "min"), _optional(point, "max"))


def _explicit(point: Any) -> Row:
    buckets = (list(point.bucket_counts), list(point.explicit_bounds))
    return (*_moments(point), *buckets, *(None,) * 8)


def _exponential(point: Any) -> Row:
    positive, negative = point.positive, point.negative
    return (
        *_moments(point),
        None,
        None,
        point.scale,
        point.zero_count,
        positive.offset,
        list(positive.bucket_counts),
        negative.offset,
        list(negative.bucket_counts),
        None,
        None,
    )


def _summary(point: Any) -> Row:
    quantiles = [entry.quantile for entry in point.quantile_values]
    values = [entry.value for entry in point.quantile_values]
    return (point.count, point.sum, None, None, *(None,) * 8, quantiles, values)


_VALUES: Final[dict[str, Callable[[Any], Row]]] = {
    "gauge": _number,
    "sum": _number,
    "histogram": _explicit,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
