"""OTLP over HTTP: protobuf and JSON, plain and gzip; and the collector's own health."""

from __future__ import annotations

import socket
import socketserver
import ssl
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from stepmeter.collector.auth import is_allowed
from stepmeter.collector.http_body import BodyError, read_body
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import Encoding, MalformedError, Signal, encode_response
from stepmeter.collector.verdicts import RefusedError, UnavailableError
from stepmeter.errors import StepmeterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from stepmeter.collector.config import Endpoint, ServerTls
    from stepmeter.collector.duckdb_processor import DuckdbProcessor
    from stepmeter.collector.health import Health

_TYPES: Final = {"application/x-protobuf": Encoding.PROTOBUF, "application/json": Encoding.JSON}
_TYPE_NAMES: Final = {encoding: name for name, encoding in _TYPES.items()}
_GRACE_S: Final = 5.0
_IDLE_S: Final = 75.0
_RPC_CODES: Final = {400: 3, 401: 16, 404: 5, 405: 12, 409: 9, 413: 8, 415: 3, 500: 13, 501: 12, 503: 14}
"""From HTTP status to `google.rpc.Code`."""


class HttpReceiver:
    """An HTTP server for traces and metrics, with `/healthz` and `/readyz`.

    Args:
        endpoint: Where it listens; port 0 takes a free one.

    Attributes:
        port: The port it listens on.

    Raises:
        StepmeterError: It can't listen there.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        try:
            self._server = _Server(endpoint)
        except OSError as error:
            raise StepmeterError(
                f"can't listen on {endpoint.address} for HTTP: {error.strerror}; choose another address with --http"
            ) from error
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, name="stepmeter-http", daemon=True
        )

    def start(self, signals: Iterable[Signal], processor: DuckdbProcessor, health: Health) -> None:
        """Begin to receive.

        Args:
            signals: What it receives.
            processor: Where requests go.
            health: Counters.
        """
        self._server.paths = {f"/v1/{signal.name}": signal for signal in signals}
        self._server.processor, self._server.health = processor, health
        self._thread.start()

    def stop(self) -> None:
        """Refuse new connections; requests that are being handled have a few seconds to end."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        self._server.idle.wait(_GRACE_S)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # idle keep-alive connections would hold the end up
    request_queue_size = 128

    processor: DuckdbProcessor
    health: Health

    def __init__(self, endpoint: Endpoint) -> None:
        self.paths: dict[str, Signal] = {}
        self.address_family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        self.max_bytes = endpoint.max_bytes
        self.token = endpoint.token
        self.idle = threading.Event()
        self.idle.set()
        self._busy = 0
        self._busy_lock = threading.Lock()
        super().__init__((endpoint.host, endpoint.port), _Handler)
        if endpoint.tls is not None:
            # the handshake is left to the thread of the connection: a silent client must not keep others out
            context = _server_context(endpoint.tls)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own looks the host's name up, which may take seconds
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def busy(self, change: int) -> None:
        with self._busy_lock:
            self._busy += change
            if self._busy:
                self.idle.clear()
            else:
                self.idle.set()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the signature is the library's
        error = sys.exc_info()[1]
        if isinstance(error, OSError):  # the other end went away
            self.health.count("connections_broken")
        else:
            self.health.warn("internal_errors", f"an HTTP request failed here: {error!r}")


def _server_context(tls: ServerTls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tls.client_ca_file)
    context.load_cert_chain(tls.cert_file, tls.key_file)
    if tls.client_ca_file:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "stepmeter"
    sys_version = ""
    disable_nagle_algorithm = True
    timeout = _IDLE_S
    server: _Server

    def do_POST(self) -> None:
        self.server.busy(1)
        try:
            self._post()
        finally:
            self.server.busy(-1)

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self._answer_json(HTTPStatus.OK, {"status": "ok", "counts": self.server.health.counts()})
        elif self.path == "/readyz":
            trouble = self.server.processor.trouble
            status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
            self._answer_json(status, {"status": "trouble" if trouble else "ok", "trouble": trouble})
        else:
            known = self.path in self.server.paths
            status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
            self._fail(Encoding.JSON, status, "use POST" if known else f"no {self.path} here")

    def _post(self) -> None:
        signal = self.server.paths.get(self.path)
        content_type = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        encoding = _TYPES.get(content_type)
        if not is_allowed(self.server.token, self.headers.get("Authorization")):
            self.close_connection = True  # the body stays unread: who may not send must not cost memory
            self.server.health.warn("requests_unauthenticated", "refused an HTTP request without the right token")
            message = "expected Authorization: Bearer and the right token"
            self._fail(encoding or Encoding.JSON, HTTPStatus.UNAUTHORIZED, message, {"WWW-Authenticate": "Bearer"})
            return
        try:
            body = read_body(self.headers, self.rfile, self.server.max_bytes)
        except BodyError as error:
            self.close_connection = True  # what is left of the body is not the next request
            self.server.health.warn("requests_malformed", f"refused an HTTP request: {error}")
            self._fail(encoding or Encoding.JSON, error.status, str(error))
            return
        if signal is None:
            there = ", ".join(self.server.paths)
            self._fail(encoding or Encoding.JSON, HTTPStatus.NOT_FOUND, f"no {self.path} here; there is {there}")
        elif encoding is None:
            message = f'content type "{content_type}"; expected {" or ".join(_TYPES)}'
            self._fail(Encoding.JSON, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)
        else:
            self._export(signal, encoding, body)

    def _export(self, signal: Signal, encoding: Encoding, body: bytes) -> None:
        try:
            receipt = self.server.processor.accept(Record(signal, encoding, body))
        except MalformedError as error:
            self.server.health.warn("requests_malformed", f"refused an HTTP request: {error}")
            self._fail(encoding, HTTPStatus.BAD_REQUEST, str(error))
        except RefusedError as error:
            self.server.health.warn("requests_refused_for_good", f"refused an HTTP request: {error}")
            self._fail(encoding, HTTPStatus.CONFLICT, str(error))
        except UnavailableError as error:
            self.server.health.count("requests_refused")
            retry = {"Retry-After": str(error.retry_after_s)}
            self._fail(encoding, HTTPStatus.SERVICE_UNAVAILABLE, str(error), retry)
        else:
            answer = signal.respond(receipt.rejected, receipt.reason)
            self._answer(HTTPStatus.OK, _TYPE_NAMES[encoding], encode_response(answer, encoding))

    def _fail(
        self, encoding: Encoding, status: HTTPStatus, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        from google.rpc.status_pb2 import Status  # type: ignore[import-untyped] # generated, without stubs

        body = encode_response(Status(code=_RPC_CODES[status], message=message), encoding)
        self._answer(status, _TYPE_NAMES[encoding], body, headers)

    def _answer_json(self, status: HTTPStatus, content: Mapping[str, Any]) -> None:
        import orjson

        self._answer(status, "application/json", orjson.dumps(content))

    def _answer(
        self, status: HTTPStatus, content_type: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature is the library's
        """Say nothing for each request; what matters is counted."""
