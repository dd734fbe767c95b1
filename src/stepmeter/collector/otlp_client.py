"""One attempt to hand a request to an OTLP backend, and what became of it."""

from __future__ import annotations

import gzip
import http.client
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import grpc

from stepmeter.collector.otlp import Encoding, parse

if TYPE_CHECKING:
    from stepmeter.collector.destination import Destination
    from stepmeter.collector.journal import Record

_RETRYABLE_STATUS: Final = frozenset({429, 502, 503, 504})
_RETRYABLE_CODES: Final = frozenset(
    {
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""RESOURCE_EXHAUSTED is one of them only when the answer says when to come again. Source: OTLP specification 1.11."""
_TYPES: Final = {Encoding.PROTOBUF: "application/x-protobuf", Encoding.JSON: "application/json"}
_MAX_ANSWER_BYTES: Final = 4 << 20
_FAST_GZIP: Final = 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one attempt.

    Attributes:
        problem: What was wrong; empty when the backend took the request.
        retryable: Whether the same request may be sent again.
        retry_after_s: How long the backend wants to be left alone, or None when it does not say.
        answer: The backend's answer, when it took the request.
    """

    problem: str = ""
    retryable: bool = False
    retry_after_s: float | None = None
    answer: bytes = b""


class GrpcClient:
    """Sends to one gRPC backend; may be used by several threads."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        options = [("grpc.max_receive_message_length", _MAX_ANSWER_BYTES)]
        if destination.secure:
            tls = destination.tls
            credentials = grpc.ssl_channel_credentials(_read(tls.ca_file), _read(tls.key_file), _read(tls.cert_file))
            self._channel = grpc.secure_channel(destination.endpoint, credentials, options)
        else:
            self._channel = grpc.insecure_channel(destination.endpoint, options)
        self._compression = grpc.Compression.Gzip if destination.compression == "gzip" else None

    def send(self, record: Record) -> Outcome:
        """Try once.

        Args:
            record: The request; JSON is rewritten as protobuf, which is all that gRPC carries.

        Returns:
            What became of it.
        """
        body = record.body
        if record.encoding is Encoding.JSON:
            body = parse(record.signal, Encoding.JSON, body).SerializeToString()
        method = self._channel.unary_unary(f"/{record.signal.service}/Export", None, None)
        destination = self._destination
        try:
            answer = method(
                body, timeout=destination.timeout_s, metadata=destination.headers, compression=self._compression
            )
        except grpc.RpcError as error:
            return _grpc_outcome(error)
        except ValueError as error:  # the channel was closed under us
            return Outcome(str(error), retryable=True)
        return Outcome(answer=answer)

    def close(self) -> None:
        """Close the connection; calls that are under way end at once."""
        self._channel.close()


class HttpClient:
    """Posts to one HTTP backend, over one connection for each thread and URL."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._context: ssl.SSLContext | None = None
        if destination.secure:
            self._context = ssl.create_default_context(cafile=destination.tls.ca_file)
            if destination.tls.cert_file:
                self._context.load_cert_chain(destination.tls.cert_file, destination.tls.key_file)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: set[http.client.HTTPConnection] = set()

    def send(self, record: Record) -> Outcome:
        """Try once; a kept connection that the backend has closed meanwhile is opened anew.

        Args:
            record: The request.

        Returns:
            What became of it.
        """
        url = urlsplit(self._destination.url(record.signal.name))
        headers = {"Content-Type": _TYPES[record.encoding], **dict(self._destination.headers)}
        body = record.body
        if self._destination.compression == "gzip":
            body = gzip.compress(body, _FAST_GZIP)
            headers["Content-Encoding"] = "gzip"
        path = f"{url.path or '/'}{'?' + url.query if url.query else ''}"
        connections: dict[str, http.client.HTTPConnection] = self._local.__dict__
        kept = url.netloc in connections
        for may_be_stale in (True, False) if kept else (False,):
            connection = connections.get(url.netloc) or self._connect(url.netloc)
            connections[url.netloc] = connection
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                answer = response.read(_MAX_ANSWER_BYTES)
            except (OSError, http.client.HTTPException) as error:
                self._drop(connections.pop(url.netloc))
                stale = isinstance(error, http.client.RemoteDisconnected | ConnectionResetError | BrokenPipeError)
                if may_be_stale and stale:
                    continue
                return Outcome(f"{type(error).__name__}: {error}", retryable=True)
            if not response.isclosed() or response.will_close:
                self._drop(connections.pop(url.netloc))
            return _http_outcome(response, answer)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close all connections; requests that are under way end at once."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                if connection.sock is not None:
                    connection.sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
            self._drop(connection)

    def _connect(self, netloc: str) -> http.client.HTTPConnection:
        timeout_s = self._destination.timeout_s
        connection = (
            http.client.HTTPConnection(netloc, timeout=timeout_s)
            if self._context is None
            else http.client.HTTPSConnection(netloc, timeout=timeout_s, context=self._context)
        )
        with self._lock:
            self._open.add(connection)
        return connection

    def _drop(self, connection: http.client.HTTPConnection) -> None:
        connection.close()
        with self._lock:
            self._open.discard(connection)


def _grpc_outcome(error: Any) -> Outcome:
    code: grpc.StatusCode = error.code()
    retry_after_s = _retry_info_s(error.trailing_metadata() or ())
    retryable = code in _RETRYABLE_CODES or (code is grpc.StatusCode.RESOURCE_EXHAUSTED and retry_after_s is not None)
    return Outcome(f"{code.name}: {' '.join(str(error.details()).split())}", retryable, retry_after_s)


def _retry_info_s(trailers: Any) -> float | None:
    """The delay that a backend asks for, in the form of Go's servers or of Python's client."""
    from google.protobuf.message import DecodeError
    from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped] # generated, without stubs
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped] # likewise

    info = RetryInfo()
    for key, value in trailers:
        with suppress(DecodeError):
            if key == "google.rpc.retryinfo-bin":
                info.ParseFromString(value)
                return _duration_s(info.retry_delay)
            if key == "grpc-status-details-bin":
                for detail in Status.FromString(value).details:
                    if detail.Unpack(info):
                        return _duration_s(info.retry_delay)
    return None


def _duration_s(duration: Any) -> float:
    return max(0.0, float(duration.seconds) + float(duration.nanos) / 1e9)


def _http_outcome(response: http.client.HTTPResponse, answer: bytes) -> Outcome:
    if 200 <= response.status < 300:
        return Outcome(answer=answer)
    problem = f"HTTP {response.status} {response.reason}"
    retryable = response.status in _RETRYABLE_STATUS
    return Outcome(problem, retryable, _retry_after_s(response.headers.get("Retry-After")))


def _retry_after_s(text: str | None) -> float | None:
    if text is None:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _read(file: str | None) -> bytes | None:
    return Path(file).read_bytes() if file else None
