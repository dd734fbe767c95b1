"""What a span around work of the device means, on a real one."""

import time

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_a_span_waits_for_the_device_only_where_the_program_does():
    """A span around launches ends before they are done; one that synchronizes inside has their time."""
    from stepmeter import span

    matrix = torch.randn(8192, 8192, device="cuda")
    matrix @ matrix
    torch.cuda.synchronize()
    with span("launch") as launch:
        for _ in range(20):
            matrix @ matrix
    began_s = time.monotonic()
    torch.cuda.synchronize()
    left_ms = (time.monotonic() - began_s) * 1e3
    with span("work") as work:
        for _ in range(20):
            matrix @ matrix
        torch.cuda.synchronize()

    assert launch.duration_ms < left_ms
    assert work.duration_ms > 2 * launch.duration_ms
