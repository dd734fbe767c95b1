"""Steps and pipelines in round numbers."""

from opentelemetry.sdk.resources import Resource

from stepmeter.capture.clock import ClockAnchor
from stepmeter.capture.identity import Identity
from stepmeter.capture.step import StepTimeBatch
from stepmeter.conventions.phases import PHASES
from stepmeter.telemetry.emit import Origin

MS = 1_000_000
ANCHOR = ClockAnchor(unix_ns=1_000_000_000_000, monotonic_ns=0)


def region(phase, start_ms, end_ms):
    return (PHASES.index(phase), start_ms * MS, end_ms * MS, None)


def step(number=1, regions=None, start_ms=0, end_ms=100, identity=None, **fields):
    """A step of 100 ms: 20 input, 30 forward, 40 backward, 5 optimizer, 5 in nothing of these."""
    if regions is None:
        regions = [
            region("input_wait", 0, 20),
            region("forward", 20, 50),
            region("backward", 50, 90),
            region("optimizer", 90, 95),
        ]
    known = {"microbatches": 1, "samples": None, "tokens": None, "warmup": False} | fields
    return StepTimeBatch(
        step=number,
        start_ns=start_ms * MS,
        end_ns=end_ms * MS,
        regions=regions,
        identity=identity or Identity(),
        **known,
    )


def origin(run_id="run-1", run_name="demo"):
    return Origin(Resource({"service.name": "test"}), run_id, run_name, ANCHOR)
