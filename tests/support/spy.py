"""An OTLP/HTTP receiver that keeps what it is sent."""

import contextlib
import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Spy:
    """What arrived.

    Attributes:
        endpoint: Where to send, as OTEL_EXPORTER_OTLP_ENDPOINT takes it.
        spans: (resource attributes, scope, span) of each span.
        metrics: (resource attributes, scope, metric) of each metric.
    """

    def __init__(self, port):
        self.endpoint = f"http://127.0.0.1:{port}"
        self.spans = []
        self.metrics = []

    def take(self, path, body):
        """Keep one request."""
        message = MESSAGES[path].FromString(body)
        for part in getattr(message, "resource_spans", ()):
            for scope in part.scope_spans:
                self.spans += [(part.resource.attributes, scope, span) for span in scope.spans]
        for part in getattr(message, "resource_metrics", ()):
            for scope in part.scope_metrics:
                self.metrics += [(part.resource.attributes, scope, metric) for metric in scope.metrics]


@contextlib.contextmanager
def spying():
    """A receiver on a free port of loopback."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            spy.take(self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    spy = Spy(server.server_address[1])
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield spy
    server.shutdown()
    server.server_close()
