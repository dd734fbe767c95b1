"""What traceml-ai adds to the same loop; runs in its own environment, where only torch is ours."""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import tempfile
import threading

import torch
from loop import LAYERS, Loop, quiet


def serve(sink):
    """Be the aggregator that it wants: accept and read."""
    while True:
        connection, _ = sink.accept()
        threading.Thread(
            target=lambda end: [None for _ in iter(lambda: end.recv(65_536), b"")], args=(connection,)
        ).start()


def main():
    """Measure before and after its start, and print the µs that it adds per step."""
    torch.set_num_threads(1)
    loops = {layers: Loop(layers) for layers in LAYERS}
    bare = {}
    for layers, loop in loops.items():
        loop.train()
        bare[layers] = quiet([loop.cost_us() for _ in range(LAYERS[layers])])
    sink = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(sink,), daemon=True).start()
    import traceml_ai as traceml
    from traceml_ai.instrumentation.step_events import drain_step_time_batches

    directory = tempfile.mkdtemp(prefix="traceml-")
    traceml.init(mode="auto", connect_timeout_sec=5, aggregator_port=sink.getsockname()[1], logs_dir=directory)
    added = {}
    for layers, loop in loops.items():
        step = functools.partial(traceml.trace_step, loop.net)
        loop.train(step=step)
        costs, idle, seen = [], [], 0
        for _ in range(LAYERS[layers]):
            idle.append(loop.cost_us())
            drain_step_time_batches()
            costs.append(loop.cost_us(step=step))
            seen += len(drain_step_time_batches())
        if not seen:
            sys.exit("it recorded nothing")
        # what it adds while idle can't be paired: it can't be taken off again
        added[layers] = quiet(costs) - min(bare[layers], quiet(idle))
    print(json.dumps(added), flush=True)
    os._exit(0)  # its threads would wait for an aggregator


if __name__ == "__main__":
    main()
