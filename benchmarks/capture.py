"""What capture costs on the training thread, per step of five regions, beside inline SDK spans and traceml-ai.

In one process short blocks follow one another in turn: the loop with torch as it is, with our patches idle, watched,
with the least that Python can do at the same places, and with a span of OpenTelemetry's SDK around each phase. Thread
CPU time of the quietest fifth of the blocks. traceml-ai runs the same loop in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from threading import get_ident

import torch
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import install, installed, uninstall

PEERS = Path(__file__).parent / "peers"
sys.path.insert(0, str(PEERS))
from barest import Barest  # noqa: E402 - likewise
from loop import LAYERS, Loop, quiet  # noqa: E402 - beside the peers, which must not see this folder
from traceml_env import PEER, traceml_env  # noqa: E402

LIMIT_US = 10.0
SHARE = 0.1


class Nowhere(SpanExporter):
    """Takes spans and does nothing with them."""

    def export(self, spans):  # noqa: ARG002 - the SDK's signature
        """Say that they arrived."""
        return SpanExportResult.SUCCESS


def measure(layers, rounds):
    """The µs per step that the patches, we and the SDK add."""
    loop = Loop(layers)
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    span = provider.get_tracer("bench").start_as_current_span
    recorder = Recorder()
    install(recorder)
    installation = installed()
    for _ in range(3):  # roots are found
        loop.train()
    switches = [*installation.switches, *installation.roots.slots()]

    barest = Barest(loop.net)

    def block(kind):
        for switch in switches:
            switch.off()
            if kind in {"idle", "stepmeter"}:
                switch.on()
        if kind == "barest":
            barest.on()
        installation.boundaries.owner = get_ident() if kind == "stepmeter" else 0
        around = {"span": span} if kind == "sdk" else {}
        loop.train(**around)  # a class that was changed has its calls specialised anew
        cost_us = loop.cost_us(**around)
        recorder.timing.drain()
        if kind == "barest":
            barest.off()
        return cost_us

    kinds = ("bare", "idle", "stepmeter", "barest", "sdk")
    rows = [{kind: block(kind) for kind in kinds} for _ in range(rounds)]
    uninstall()
    provider.shutdown()
    costs = {kind: quiet([row[kind] for row in rows]) for kind in kinds}
    return {"bare": costs["bare"], **{kind: costs[kind] - costs["bare"] for kind in kinds[1:]}}


def losses(*, watch):
    """The losses of a training with dropout, watched or not."""
    torch.manual_seed(0)
    if watch:
        install(Recorder())
    net = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(net.parameters())
    found = []
    for batch in torch.utils.data.DataLoader(torch.randn(512, 4), batch_size=4, shuffle=True):
        loss = net(batch).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    uninstall()
    return found


def peer():
    """What traceml-ai adds in µs per step by submodules, or why that can't be known."""
    try:
        program = f"import sys; sys.path.append({str(PEERS)!r})\nimport beside_traceml; beside_traceml.main()"
        done = subprocess.run(
            [traceml_env() / "python", "-c", program], check=True, capture_output=True, text=True, timeout=300
        )
        return {int(layers): us for layers, us in json.loads(done.stdout.splitlines()[-1]).items()}, ""
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        output = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        return {}, f"{PEER} could not run: {output[-1] if output else error}"


def rows():
    """Everything measured, as rows of the table."""
    torch.set_num_threads(1)
    theirs, why = peer()
    for layers, rounds in LAYERS.items():
        found = measure(layers, rounds)
        us = {kind: round(value, 1) for kind, value in found.items()}
        yield {
            "what": f"training-thread CPU per step, {layers} submodules",
            "measured": f"+{us['stepmeter']} us to {us['bare']} us "
            f"(idle +{us['idle']}, barest +{us['barest']}, SDK +{us['sdk']})",
            "target": f"<= {LIMIT_US:.0f} us",
            "met": found["stepmeter"] <= LIMIT_US,
        } | {"us": us}
        share = found["stepmeter"] / theirs[layers] if layers in theirs else None
        yield {
            "what": f"  beside traceml-ai 0.5.0, {layers} submodules",
            "measured": why if share is None else f"{share:.3f} (it adds {theirs[layers]:.1f} us)",
            "target": f"<= {SHARE}",
            "met": None if share is None else share <= SHARE,
        }
    same = losses(watch=False) == losses(watch=True)
    yield {
        "what": "losses with and without us",
        "measured": "equal" if same else "differ",
        "target": "equal",
        "met": same,
    }


def main():
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one list for the table")
    found = rows()
    if parser.parse_args().json:
        print(json.dumps(list(found)))
        return
    for row in found:
        print(f"{row['what']:<50} {row['measured']}  (target {row['target']})", flush=True)


if __name__ == "__main__":
    main()
