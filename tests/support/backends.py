"""OTLP backends of our own making: they record what comes and answer as they are told."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc

SERVICES = {
    "traces": "opentelemetry.proto.collector.trace.v1.TraceService",
    "metrics": "opentelemetry.proto.collector.metrics.v1.MetricsService",
    "logs": "opentelemetry.proto.collector.logs.v1.LogsService",
}


class Backend:
    """What came, and what is answered; answers are used up in order, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.bodies = []
        self.headers = []
        self.paths = []
        self.address = ""
        self._lock = threading.Lock()

    def take(self, path, body, headers):
        """Note a request and say what to answer."""
        with self._lock:
            self.paths.append(path)
            self.bodies.append(body)
            self.headers.append(headers)
            return self.answers.pop(0) if len(self.answers) > 1 else (self.answers or [None])[0]


@contextmanager
def http_backend(*answers):
    """Over HTTP; an answer is (status, headers, body) or None for success."""
    backend = Backend(*answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, more, answer = backend.take(self.path, body, headers) or (200, {}, b"")
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **more}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    backend.address = f"127.0.0.1:{server.server_address[1]}"
    try:
        yield backend
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def grpc_backend(*answers):
    """Over gRPC; an answer is (code, trailers) or the bytes of a success or None."""
    backend = Backend(*answers)
    server = grpc.server(ThreadPoolExecutor(4))

    def export(body, context):
        answer = backend.take("", body, dict(context.invocation_metadata()))
        if isinstance(answer, tuple):
            code, trailers = answer
            context.set_trailing_metadata(trailers)
            context.abort(code, "as told")
        return answer or b""

    for service in SERVICES.values():
        method = grpc.unary_unary_rpc_method_handler(export)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    backend.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield backend
    finally:
        server.stop(0).wait()
