"""The Python that a page shows, run as it stands."""

import re
from pathlib import Path

import torch
from tests.support.training import loader, model, seen

from stepmeter.capture.step import Recorder
from stepmeter.instrumentation.instrumentor import install, uninstall

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "pytorch.md"


def test_every_block_of_the_page_about_plain_loops_works(monkeypatch):
    """Each block gives the steps that the page promises: four batches, four steps; the last one trains nothing."""
    monkeypatch.setenv("STEPMETER_DISABLED", "1")  # no session: the recorder below is the one that sees
    torch._dynamo.reset()
    counts = []
    blocks = re.findall(r"```python\n(.+?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    net = model()
    names = {"torch": torch, "nn": torch.nn, "model": net, "loader": loader(4)}
    names["optimizer"] = torch.optim.SGD(net.parameters(), 0.1)
    for block in blocks:
        recorder = Recorder()
        install(recorder, strict=True)
        try:
            exec(compile(block, str(PAGE), "exec"), names)  # noqa: S102 - the page's own
            counts.append(len(seen(recorder)) if recorder.steps else 0)
        finally:
            uninstall()
    assert counts == [4, 4, 4, 0]
