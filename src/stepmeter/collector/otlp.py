"""OTLP requests and answers: from bytes, protobuf or JSON, to messages and back."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message


class MalformedError(Exception):
    """A request that no decoder can read; the sender must not send it again."""


class Encoding(Enum):
    """How a body is written; the value is its byte in the journal."""

    PROTOBUF = 0
    JSON = 1


@dataclass(frozen=True, slots=True)
class Signal:
    """One kind of telemetry.

    Attributes:
        code: Its byte in the journal.
        name: Its name for people; also the last part of its HTTP path.
        service: Full name of its gRPC service.
        request: Class of the request.
        response: Class of the answer.
        rejected_field: The answer's field that counts what was not taken.
    """

    code: int
    name: str
    service: str
    request: type[Message]
    response: type[Message]
    rejected_field: str

    def respond(self, rejected: int, reason: str) -> Message:
        """Make the answer to a request that was taken.

        Args:
            rejected: How many of its items were not.
            reason: Why.

        Returns:
            The answer; without a word on partial success when all were taken, as the specification demands.
        """
        answer: Any = self.response()
        if rejected:
            setattr(answer.partial_success, self.rejected_field, rejected)
            answer.partial_success.error_message = reason
        return answer  # type: ignore[no-any-return] # the class is known at run time only


_SERVICES: Final = "opentelemetry.proto.collector"

TRACES: Final = Signal(
    1,
    "traces",
    f"{_SERVICES}.trace.v1.TraceService",
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
    "rejected_spans",
)
METRICS: Final = Signal(
    2,
    "metrics",
    f"{_SERVICES}.metrics.v1.MetricsService",
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
    "rejected_data_points",
)
LOGS: Final = Signal(
    3,
    "logs",
    f"{_SERVICES}.logs.v1.LogsService",
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
    "rejected_log_records",
)
SIGNALS: Final = (TRACES, METRICS, LOGS)

_ID_KEYS: Final = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})


def parse(signal: Signal, encoding: Encoding, body: bytes) -> Any:
    """Decode a request.

    Args:
        signal: What it should hold.
        encoding: How it is written.
        body: Its bytes, decompressed.

    Returns:
        The message, of class `signal.request`.

    Raises:
        MalformedError: The bytes are no such request.
    """
    if encoding is Encoding.JSON:
        return _parse_json(signal, body)
    try:
        return signal.request.FromString(body)
    except DecodeError as error:
        raise MalformedError(f"not a protobuf {signal.name} request: {error}") from None


def partial_success(signal: Signal, encoding: Encoding, body: bytes) -> tuple[int, str]:
    """Read what a backend says that it did not take.

    Args:
        signal: What it was sent.
        encoding: How it answers.
        body: Its answer.

    Returns:
        Number of items and reason; 0 when it took all, or when its answer is not one of OTLP.
    """
    from google.protobuf import json_format

    answer: Any = signal.response()
    try:
        if encoding is Encoding.PROTOBUF:
            answer.ParseFromString(body)
        else:
            json_format.Parse(body, answer, ignore_unknown_fields=True)
    except (DecodeError, ValueError, json_format.Error):
        return 0, ""
    return getattr(answer.partial_success, signal.rejected_field), answer.partial_success.error_message


def encode_response(message: Message, encoding: Encoding) -> bytes:
    """Write an answer in the encoding of its request.

    Args:
        message: The answer.
        encoding: That of the request.

    Returns:
        The bytes; an empty JSON answer is `{}`.
    """
    if encoding is Encoding.PROTOBUF:
        return message.SerializeToString()
    from google.protobuf import json_format

    return json_format.MessageToJson(message, indent=None).encode()


def _parse_json(signal: Signal, body: bytes) -> Any:
    import orjson
    from google.protobuf import json_format

    message = signal.request()
    try:
        document = orjson.loads(body)
        if not isinstance(document, dict):  # ParseDict takes an empty list or a text for an empty message
            raise TypeError("found no object")  # noqa: TRY301 - one way out for everything that is wrong
        _ids_to_base64(document)
        json_format.ParseDict(document, message, ignore_unknown_fields=True)
    except (ValueError, TypeError, AttributeError, RecursionError, json_format.Error) as error:
        raise MalformedError(f"not a JSON {signal.name} request: {' '.join(str(error).split())}") from None
    return message


def _ids_to_base64(value: Any) -> None:
    """Rewrite ids in place: OTLP writes them in hexadecimal, where protobuf's JSON expects base64.

    A user's own keys are never keys of the document (attributes are lists of key and value), so that a key of
    these names is always an id.
    """
    if isinstance(value, list):
        for item in value:
            _ids_to_base64(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key in _ID_KEYS and isinstance(item, str):
                value[key] = base64.b64encode(bytes.fromhex(item)).decode()
            else:
                _ids_to_base64(item)
