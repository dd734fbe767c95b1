"""A small HTTP server whose metrics page is that of an inference server."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Page:
    """What the server answers; a test changes it while the server runs.

    Attributes:
        status: HTTP status.
        delay_s: What an answer takes.
        text: The page; a callable is asked each time.
    """

    def __init__(self, text=""):
        self.status = 200
        self.delay_s = 0.0
        self.text = text
        self.url = ""
        self.asked = 0


@contextlib.contextmanager
def serving(text=""):
    """Serve a page on a free loopback port while the block runs."""
    page = Page(text)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            page.asked += 1
            time.sleep(page.delay_s)
            body = (page.text() if callable(page.text) else page.text).encode()
            self.send_response(page.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(BrokenPipeError):
                self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        page.url = f"http://127.0.0.1:{server.server_port}/metrics"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield page
        server.shutdown()
