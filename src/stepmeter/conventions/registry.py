"""The whole vocabulary as data: for the golden schema, the reference page and whoever wants to read it by program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from stepmeter.conventions import CONVENTIONS_VERSION
from stepmeter.conventions.attributes import Attribute
from stepmeter.conventions.metrics import METRICS
from stepmeter.conventions.resource import RESOURCE_ATTRIBUTES
from stepmeter.conventions.spans import SPANS

_UNIT_WORDS = {"s": "seconds", "By": "bytes", "J": "joules", "W": "watts", "Cel": "celsius"}
_COMPARED = ("type", "unit", "instrument", "required", "prometheus", "attributes")


def registry() -> dict[str, Any]:
    """Everything that is declared.

    Returns:
        `version`, `resource` (attributes by key), `spans` (by name, with attributes by key) and `metrics` (by name).
    """
    return {
        "version": CONVENTIONS_VERSION,
        "resource": {attribute.key: _attribute(attribute) for attribute in RESOURCE_ATTRIBUTES},
        "spans": {
            span.name: {"brief": span.brief, "attributes": {a.key: _attribute(a) for a in span.attributes}}
            for span in SPANS
        },
        "metrics": {
            metric.name: {
                "instrument": metric.instrument,
                "unit": metric.unit,
                "brief": metric.brief,
                "attributes": list(metric.attributes),
                "prometheus": prometheus_name(metric.name, metric.unit, metric.instrument),
            }
            for metric in METRICS
        },
    }


def prometheus_name(name: str, unit: str, instrument: str) -> str:
    """The name under which Prometheus knows a metric.

    Args:
        name: The metric's name.
        unit: Its unit in UCUM.
        instrument: counter, gauge or histogram.

    Returns:
        For instance `stepmeter_step_duration_seconds`; series of a histogram add `_bucket`, `_sum`, `_count`.

    Source:
        OpenTelemetry specification, "Prometheus and OpenMetrics Compatibility".
    """
    parts = [name.replace(".", "_")]
    if unit in _UNIT_WORDS:
        parts.append(_UNIT_WORDS[unit])
    elif unit == "1" and instrument == "gauge":
        parts.append("ratio")
    if instrument == "counter":
        parts.append("total")
    return "_".join(parts)


def golden() -> dict[str, Any]:
    """The vocabulary as it was last released or agreed on.

    Returns:
        Of the shape of `registry`.
    """
    text = resources.files("stepmeter.conventions").joinpath("golden.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def breaking_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What would break a reader that knows the older vocabulary.

    Args:
        before: The older registry.
        now: The newer one.

    Returns:
        One line for each name that went, or whose type, unit or instrument changed; empty when names were only added.
    """
    return [change for part in ("resource", "spans", "metrics") for change in _changes(part, before[part], now[part])]


def reference_page() -> str:
    """The vocabulary as a page.

    Returns:
        Markdown.
    """
    found = registry()
    lines = [
        "# What goes on the wire",
        "",
        "Generated from `stepmeter.conventions` by `make docs`; do not edit.",
        "",
        f"Conventions version {found['version']}. Units are UCUM. What was not measured is absent, never 0.",
        "",
        "## Resource",
        "",
        *_attribute_table(found["resource"]),
        "## Spans",
        "",
    ]
    for name, span in found["spans"].items():
        lines += [f"### `{name}`", "", span["brief"], "", *_attribute_table(span["attributes"])]
    lines += [
        "## Metrics",
        "",
        "| metric | instrument | unit | attributes | in Prometheus | what |",
        "|---|---|---|---|---|---|",
    ]
    for name, metric in found["metrics"].items():
        attributes = ", ".join(f"`{key}`" for key in metric["attributes"])
        lines.append(
            f"| `{name}` | {metric['instrument']} | `{metric['unit']}` | {attributes} "
            f"| `{metric['prometheus']}` | {metric['brief']} |"
        )
    return "\n".join([*lines, ""])


def _attribute(attribute: Attribute) -> dict[str, Any]:
    return {
        "type": attribute.type,
        "unit": attribute.unit,
        "brief": attribute.brief,
        "required": attribute.required,
    }


def _attribute_table(attributes: Mapping[str, Any]) -> Iterator[str]:
    yield "| attribute | type | unit | always | what |"
    yield "|---|---|---|---|---|"
    for key, attribute in attributes.items():
        unit = f"`{attribute['unit']}`" if attribute["unit"] else ""
        always = "yes" if attribute["required"] else ""
        yield f"| `{key}` | {attribute['type']} | {unit} | {always} | {attribute['brief']} |"
    yield ""


def _changes(part: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            yield f"{part}: {name} is gone"
            continue
        for field in _COMPARED:
            if isinstance(old.get(field), dict):
                yield from _changes(f"{part}: {name}", old[field], new[field])
            elif isinstance(old.get(field), list):
                yield from (f"{part}: {name} lost {key}" for key in old[field] if key not in new[field])
            elif old.get(field) != new.get(field):
                yield f"{part}: {name}: {field} was {old.get(field)!r} and is {new.get(field)!r}"
