"""What capture costs on the training thread, per step of four regions, beside inline SDK spans.

One process; short blocks of a bare loop, the watched loop and the loop with a span around each phase, in turn;
thread CPU time, medians of the differences within a round. The loop is real (DataLoader, root module, backward, SGD)
and as small as torch allows.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from threading import get_ident

import torch
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import _installed, install, uninstall

BATCHES = 30


class Nowhere(SpanExporter):
    """Takes spans and does nothing with them."""

    def export(self, spans):  # noqa: ARG002 - the SDK's signature
        """Say that they arrived."""
        return SpanExportResult.SUCCESS


class Deep(nn.Module):
    """A root above so many small layers."""

    def __init__(self, layers):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers)))

    def forward(self, inputs):
        """Run them one after the other."""
        return self.layers(inputs)


def train(net, optimizer, loader, span):
    iterator = iter(loader)
    while True:
        with span("input_wait"):
            batch = next(iterator, None)
        if batch is None:
            return
        with span("forward"):
            loss = net(batch).sum()
        with span("backward"):
            loss.backward()
        with span("optimizer"):
            optimizer.step()


def measure(layers, rounds):
    net = Deep(layers)
    optimizer = torch.optim.SGD(net.parameters(), 1e-6)
    loader = DataLoader(
        TensorDataset(torch.zeros(BATCHES, 4)), batch_size=1, collate_fn=lambda items: items[0][0][None]
    )
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    start_span = provider.get_tracer("bench").start_as_current_span
    recorder = Recorder()
    install(recorder)
    boundaries = _installed[0].boundaries
    kinds = {
        "bare": (contextlib.nullcontext, 0),
        "stepmeter": (contextlib.nullcontext, get_ident()),
        "sdk": (start_span, 0),
    }
    for _ in range(3):  # roots are found
        train(net, optimizer, loader, contextlib.nullcontext)

    def block(kind):
        span, boundaries.owner = kinds[kind]
        began_ns = time.thread_time_ns()
        train(net, optimizer, loader, span)
        cost_us = (time.thread_time_ns() - began_ns) / BATCHES / 1e3
        recorder.timing.drain()
        return cost_us

    rows = [{kind: block(kind) for kind in kinds} for _ in range(rounds)]
    uninstall()
    provider.shutdown()
    added = {kind: statistics.median(row[kind] - row["bare"] for row in rows) for kind in ("stepmeter", "sdk")}
    return {
        "layers": layers,
        "bare_us": round(statistics.median(row["bare"] for row in rows), 1),
        "stepmeter_us": round(added["stepmeter"], 1),
        "sdk_us": round(added["sdk"], 1),
        "stepmeter_over_sdk": round(added["stepmeter"] / added["sdk"], 3),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for layers in (1, 12, 51):
        print(json.dumps(measure(layers, arguments.rounds)), flush=True)


if __name__ == "__main__":
    main()
