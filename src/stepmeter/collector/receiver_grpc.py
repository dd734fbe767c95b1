"""OTLP over gRPC: the services' raw bytes go to the processor, its verdict becomes a status."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc

from stepmeter.collector.auth import is_allowed
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import Encoding, MalformedError, Signal
from stepmeter.collector.verdicts import RefusedError, UnavailableError
from stepmeter.errors import StepmeterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import NoReturn

    from stepmeter.collector.config import Endpoint
    from stepmeter.collector.duckdb_processor import DuckdbProcessor
    from stepmeter.collector.health import Health

_THREADS: Final = 16
_GRACE_S: Final = 5.0


class GrpcReceiver:
    """A gRPC server for traces and metrics.

    Args:
        endpoint: Where it listens; port 0 takes a free one.

    Attributes:
        port: The port it listens on.

    Raises:
        StepmeterError: It can't listen there.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._token = endpoint.token
        self._server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix="stepmeter-grpc"),
            options=[
                ("grpc.max_receive_message_length", endpoint.max_bytes),
                ("grpc.so_reuseport", 0),  # otherwise two collectors share a port and each gets half
            ],
        )
        try:
            self.port: int = self._listen(endpoint)
        except RuntimeError as error:
            raise StepmeterError(
                f"can't listen on {endpoint.address} for gRPC: the address is taken or not ours; "
                "choose another with --grpc"
            ) from error

    def _listen(self, endpoint: Endpoint) -> int:
        if endpoint.tls is None:
            return self._server.add_insecure_port(endpoint.address)
        tls = endpoint.tls
        client_ca = Path(tls.client_ca_file).read_bytes() if tls.client_ca_file else None
        pair = (Path(tls.key_file).read_bytes(), Path(tls.cert_file).read_bytes())
        credentials = grpc.ssl_server_credentials([pair], client_ca, require_client_auth=client_ca is not None)
        return self._server.add_secure_port(endpoint.address, credentials)

    def start(self, signals: Iterable[Signal], processor: DuckdbProcessor, health: Health) -> None:
        """Begin to receive.

        Args:
            signals: What it receives.
            processor: Where requests go.
            health: Counters.
        """
        for signal in signals:
            method = grpc.unary_unary_rpc_method_handler(_exporter(signal, processor, health, self._token))
            handler = grpc.method_handlers_generic_handler(signal.service, {"Export": method})
            self._server.add_generic_rpc_handlers((handler,))
        self._server.start()

    def stop(self) -> threading.Event:
        """Refuse new requests; those that are being handled have a few seconds to end.

        Returns:
            An event that is set when none is left.
        """
        stopped: threading.Event = self._server.stop(_GRACE_S)
        return stopped


def _authorization(context: Any) -> str | None:
    return next((value for key, value in context.invocation_metadata() if key == "authorization"), None)


def _exporter(
    signal: Signal, processor: DuckdbProcessor, health: Health, token: str | None
) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        if token is not None and not is_allowed(token, _authorization(context)):
            health.warn("requests_unauthenticated", "refused a gRPC request without the right token")
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "expected Authorization: Bearer and the right token")
        try:
            receipt = processor.accept(Record(signal, Encoding.PROTOBUF, body))
        except MalformedError as error:
            health.warn("requests_malformed", f"refused a gRPC request: {error}")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except RefusedError as error:
            health.warn("requests_refused_for_good", f"refused a gRPC request: {error}")
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except UnavailableError as error:
            health.count("requests_refused")
            _ask_again(context, error)
        return signal.respond(receipt.rejected, receipt.reason).SerializeToString()

    return export


def _ask_again(context: Any, error: UnavailableError) -> NoReturn:
    """UNAVAILABLE with the delay in both forms: Python's exporter reads the one, everybody else's the other."""
    from google.protobuf.any_pb2 import Any as AnyMessage
    from google.protobuf.duration_pb2 import Duration
    from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped] # generated, without stubs
    from google.rpc.status_pb2 import Status  # type: ignore[import-untyped] # likewise

    retry = RetryInfo(retry_delay=Duration(seconds=error.retry_after_s))
    detail = AnyMessage()
    detail.Pack(retry)
    code = grpc.StatusCode.UNAVAILABLE
    status = Status(code=code.value[0], message=str(error), details=[detail])
    context.set_trailing_metadata(
        (
            ("google.rpc.retryinfo-bin", retry.SerializeToString()),
            ("grpc-status-details-bin", status.SerializeToString()),
        )
    )
    context.abort(code, str(error))
    raise AssertionError  # abort never returns
