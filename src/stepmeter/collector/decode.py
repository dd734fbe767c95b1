"""From OTLP messages to rows: the parts that spans and metrics share."""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import orjson
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from stepmeter.conventions import resource as names
from stepmeter.conventions.attributes import (
    ATTEMPT,
    HW_ID,
    LOCAL_RANK,
    NODE_RANK,
    RANK,
    WORLD_SIZE,
    Attribute,
)
from stepmeter.store.schema import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepmeter.store.model import Block
    from stepmeter.store.schema import Table

Row = tuple[Any, ...]

UNASSIGNED: Final = "unassigned"
"""Run of telemetry that names none, when the collector was started without a run."""

MAX_TIME_NS: Final = 2**63 - 1
"""Largest time that a column holds: the year 2262."""

_PYTHON_TYPES: Final = {"int": int, "double": float, "string": str, "boolean": bool}
_INFINITIES: Final = {math.inf: "Infinity", -math.inf: "-Infinity"}


@dataclass(frozen=True, slots=True)
class RunKey:
    """Which run telemetry belongs to.

    Attributes:
        run_id: Identity of the run.
        run_name: Its name, or None when the telemetry does not say; no part of the identity.
    """

    run_id: str
    run_name: str | None = field(default=None, compare=False)


@dataclass(slots=True)
class Rows:
    """Rows on their way to the store, by run and table: one by one, and column by column."""

    tables: dict[tuple[RunKey, Table], list[Row]] = field(default_factory=dict)
    blocks: dict[tuple[RunKey, Table], list[Block]] = field(default_factory=dict)

    def of(self, run: RunKey, table: Table) -> list[Row]:
        """The list of one run's rows of one table, to append to.

        Args:
            run: The run.
            table: The table.

        Returns:
            The list itself.
        """
        return self.tables.setdefault((run, table), [])

    def blocks_of(self, run: RunKey, table: Table) -> list[Block]:
        """The list of one run's blocks of rows of one table, to append to.

        Args:
            run: The run.
            table: The table.

        Returns:
            The list itself.
        """
        return self.blocks.setdefault((run, table), [])


@dataclass(frozen=True, slots=True)
class ResourceFacts:
    """What rows need to know of the resource that they came from.

    Attributes:
        run: The run that it names, or None.
        resource_id: Content hash.
        service_name: `service.name`, or None.
        host: `host.name`, or None.
        attributes: All attributes.
        row: Its row without the run's id.
    """

    run: RunKey | None
    resource_id: str
    service_name: str | None
    host: str | None
    attributes: dict[str, Any]
    row: Row


def any_value(value: Any) -> Any:
    """Turn an OTLP `AnyValue` into plain data that JSON can hold.

    Args:
        value: The message.

    Returns:
        str, int, float, bool, list, dict or None; bytes as base64, NaN and infinities as their names.
    """
    # a falsy field is either absent or zero; looking at the common kinds first saves the costly question which
    if text := value.string_value:
        return text
    if number := value.int_value:
        return number
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "double_value":
        return finite(value.double_value)
    if kind == "array_value":
        return [any_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    return getattr(value, kind)


def finite(number: float) -> float | str:
    """Keep what JSON can hold of a floating-point number.

    Args:
        number: Any number.

    Returns:
        The number, or `NaN`, `Infinity`, `-Infinity`.
    """
    if math.isfinite(number):
        return number
    return _INFINITIES.get(number, "NaN")


def attributes_of(pairs: Iterable[Any]) -> dict[str, Any]:
    """Turn OTLP attributes into a dictionary.

    Args:
        pairs: `KeyValue` messages; the last of equal keys wins.

    Returns:
        Keys with plain values.
    """
    return {pair.key: any_value(pair.value) for pair in pairs}


def to_json(value: Any) -> str | None:
    """Write what has no column of its own.

    Args:
        value: A dictionary or list of plain data.

    Returns:
        JSON, or None when it is empty.
    """
    return orjson.dumps(value).decode() if value else None


def typed(attributes: dict[str, Any], attribute: Attribute) -> Any:
    """Take an attribute if it has the type that the conventions give it.

    Args:
        attributes: Plain attributes.
        attribute: Which one.

    Returns:
        Its value, or None when absent or of another type.
    """
    value = attributes.get(attribute.key)
    return value if has_type(value, attribute) else None


def has_type(value: Any, attribute: Attribute) -> bool:
    """Whether a value fits the column of its attribute.

    Args:
        value: A plain value.
        attribute: The attribute.

    Returns:
        True when it does; a boolean is no integer.
    """
    return type(value) is _PYTHON_TYPES[attribute.type]


def take(attributes: dict[str, Any], attribute: Attribute, otherwise: Any = None) -> Any:
    """Move an attribute into its column; one of a wrong type stays where it is.

    Args:
        attributes: Plain attributes, from which it is taken.
        attribute: Which one.
        otherwise: What holds when it is not among them.

    Returns:
        Its value, or what holds otherwise.
    """
    key = attribute.key
    return attributes.pop(key) if key in attributes and has_type(attributes[key], attribute) else otherwise


def resource_facts(resource: Any) -> ResourceFacts:
    """Read a resource; the same content is read once.

    Args:
        resource: The OTLP message.

    Returns:
        Its facts.
    """
    return facts_of_bytes(resource.SerializeToString())


@lru_cache(maxsize=4096)
def facts_of_bytes(content: bytes) -> ResourceFacts:
    """Read a resource from its bytes; the same bytes are read once.

    Args:
        content: The OTLP message as bytes.

    Returns:
        Its facts.
    """
    return _facts_of(Resource.FromString(content).SerializeToString(deterministic=True))


_PROMOTED: Final = (
    names.SERVICE_NAME,
    names.SERVICE_INSTANCE_ID,
    names.HOST_NAME,
    names.PROCESS_PID,
    ATTEMPT,
    RANK,
    LOCAL_RANK,
    NODE_RANK,
    WORLD_SIZE,
    HW_ID,
    names.CLOCK_ANCHOR_UNIX,
    names.CLOCK_ANCHOR_MONOTONIC,
    names.CLOCK_BOOT_ID,
)
"""The attributes that columns of `resources` hold, in the order of those columns."""

assert len(RESOURCES.columns) == len(_PROMOTED) + 3  # noqa: S101 - run_id, resource_id and attributes beside them


def _facts_of(content: bytes) -> ResourceFacts:
    attributes = attributes_of(Resource.FromString(content).attributes)
    resource_id = hashlib.blake2b(content, digest_size=16).hexdigest()
    columns = [typed(attributes, attribute) for attribute in _PROMOTED]
    return ResourceFacts(
        run=_run_of(attributes),
        resource_id=resource_id,
        service_name=typed(attributes, names.SERVICE_NAME),
        host=typed(attributes, names.HOST_NAME),
        attributes=attributes,
        row=(resource_id, *columns, to_json(attributes)),
    )


def _run_of(attributes: dict[str, Any]) -> RunKey | None:
    run_id = typed(attributes, names.RUN_ID)
    return RunKey(run_id, typed(attributes, names.RUN_NAME)) if run_id else None
