"""An inference server as small as one can be: OpenAI's chat API, streaming, with a metrics page under vLLM's names.

The model is a GRU over bytes with random weights, so that its words mean nothing; its work is real. The state after
each block of a prompt is kept, so that a prompt that begins as an earlier one did is computed from there on.
"""

import argparse
import json
import threading
import time
from collections import OrderedDict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from torch import nn

MODEL = "tiny"
BLOCK = 16
"""Tokens after which the state is kept."""
CACHED_BLOCKS = 4096


class ByteModel(nn.Module):
    """Says which byte comes next."""

    def __init__(self, width=512, layers=2):
        super().__init__()
        self.embedding = nn.Embedding(256, width)
        self.recurrent = nn.GRU(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens, state):
        """Logits after the last of the tokens, and the state to go on from."""
        hidden, state = self.recurrent(self.embedding(tokens), state)
        return self.head(hidden[:, -1]), state


class Metrics:
    """What vLLM counts, by its names."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.prompt = self._counter("vllm:prompt_tokens", "Prompt tokens.")
        self.generation = self._counter("vllm:generation_tokens", "Generated tokens.")
        self.queries = self._counter("vllm:prefix_cache_queries", "Tokens looked up in the prefix cache.")
        self.hits = self._counter("vllm:prefix_cache_hits", "Tokens found in the prefix cache.")
        self.prefill = self._histogram("vllm:request_prefill_time_seconds", "Time of requests in prefill.")
        self.decode = self._histogram("vllm:request_decode_time_seconds", "Time of requests in decode.")

    def _counter(self, name, words):
        return Counter(name, words, ["model_name", "engine"], registry=self.registry).labels(MODEL, "0")

    def _histogram(self, name, words):
        return Histogram(name, words, ["model_name", "engine"], registry=self.registry).labels(MODEL, "0")


class Engine:
    """One request at a time."""

    def __init__(self, metrics):
        torch.manual_seed(0)
        self._model = ByteModel().eval()
        self._metrics = metrics
        self._cache = OrderedDict()
        self._lock = threading.Lock()

    @torch.inference_mode()
    def generate(self, prompt, max_tokens):
        """Yield the bytes of an answer, one by one."""
        with self._lock:
            begun_s = time.perf_counter()
            logits, state = self._prefill(prompt)
            decode_s = time.perf_counter()
            self._metrics.prefill.observe(decode_s - begun_s)
            try:
                for _ in range(max_tokens):
                    token = 97 + int(torch.multinomial(torch.softmax(logits[0, 97:123], 0), 1))
                    self._metrics.generation.inc()
                    yield token
                    logits, state = self._model(torch.tensor([[token]]), state)
            finally:
                self._metrics.decode.observe(time.perf_counter() - decode_s)

    def _prefill(self, prompt):
        """The state after the prompt, from the longest beginning that is known."""
        known, state = 0, None
        for end in range(len(prompt) - 1 - (len(prompt) - 1) % BLOCK, 0, -BLOCK):
            if prompt[:end] in self._cache:
                known, state = end, self._cache[prompt[:end]]
                break
        self._metrics.prompt.inc(len(prompt))
        self._metrics.queries.inc(len(prompt))
        self._metrics.hits.inc(known)
        logits = None
        for start in range(known, len(prompt), BLOCK):
            block = prompt[start : start + BLOCK]
            logits, state = self._model(torch.tensor([list(block)]), state)
            if len(block) == BLOCK:
                self._cache[prompt[: start + BLOCK]] = state
                if len(self._cache) > CACHED_BLOCKS:
                    self._cache.popitem(last=False)
        return logits, state


class Handler(BaseHTTPRequestHandler):
    """OpenAI's chat completions, and the metrics page."""

    protocol_version = "HTTP/1.1"
    engine: Engine
    metrics: Metrics

    def do_GET(self):
        """The metrics page, and the list of models."""
        if self.path == "/metrics":
            self._answer(generate_latest(self.metrics.registry), "text/plain; version=0.0.4")
        elif self.path == "/v1/models":
            self._answer(json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode())
        else:
            self.send_error(404)

    def do_POST(self):
        """A chat completion, at once or as it comes."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = "".join(f"<{one['role']}>{one['content']}" for one in request["messages"]).encode()[:8192]
        limit = int(request.get("max_completion_tokens") or request.get("max_tokens") or 64)
        words = self.engine.generate(prompt, limit)
        usage = {"prompt_tokens": len(prompt), "completion_tokens": limit, "total_tokens": len(prompt) + limit}
        if not request.get("stream"):
            message = {"role": "assistant", "content": bytes(words).decode()}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            self._answer(json.dumps(_completion("chat.completion", [choice], usage)).encode())
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for token in words:
            self._event([{"index": 0, "delta": {"content": chr(token)}, "finish_reason": None}])
        self._event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
        if (request.get("stream_options") or {}).get("include_usage"):
            self._event([], usage)
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, choices, usage=None):
        self.wfile.write(f"data: {json.dumps(_completion('chat.completion.chunk', choices, usage))}\n\n".encode())
        self.wfile.flush()

    def _answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """A request is no news."""


def _completion(kind, choices, usage):
    return {"id": "one", "object": kind, "created": 1, "model": MODEL, "choices": choices, "usage": usage}


def main():
    """Serve until killed; the port is the first line of output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 for a free one")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    Handler.metrics = Metrics()
    Handler.engine = Engine(Handler.metrics)
    with ThreadingHTTPServer(("127.0.0.1", arguments.port), Handler) as server:
        server.daemon_threads = True
        print(server.server_port, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
