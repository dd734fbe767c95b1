"""Sampling beside a program that is not ours: devices and an inference server, straight to OTLP."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepmeter.capture.channel import Channel
from stepmeter.capture.clock import read_anchor
from stepmeter.capture.reading import Reading
from stepmeter.capture.run import ensure_run_id
from stepmeter.conventions import environment
from stepmeter.samplers.sampling import Sampler, Sampling

if TYPE_CHECKING:
    from stepmeter.samplers.inference import Engine

_CAPACITY = 65_536
_EXPORT_S = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What is sampled.

    Attributes:
        uuids: GPUs.
        scrape: Metrics pages of inference servers.
        engine: What serves there; None without pages.
        interval_s: Time between readings, in s; the energy counter has its own rhythm.
    """

    uuids: Sequence[str]
    scrape: Sequence[str] = ()
    engine: Engine | None = None
    interval_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Sampled:
    """What came of it.

    Attributes:
        sent: Readings that were taken.
        failed: Readings that were not.
        dropped: Readings for which there was no room.
    """

    sent: int
    failed: int
    dropped: int


def sample(
    plan: Plan,
    stop: threading.Event,
    duration_s: float | None,
    say: Callable[[str], None],
    on_begun: Callable[[], None] = lambda: None,
) -> Sampled:
    """Sample until told to stop, or for a time.

    Args:
        plan: What.
        stop: Ends it.
        duration_s: For how long at most, in s; None = until `stop`.
        say: Told once in a line when something keeps failing.
        on_begun: Called when first readings were there, so that who waits for them can go on.

    Returns:
        What came of it.
    """
    from stepmeter.telemetry.readings import ReadingsExport, otlp_exporter

    run_id = ensure_run_id(os.environ)
    readings: Channel[Reading] = Channel(_CAPACITY)
    told: set[str] = set()

    def once(where: str, error: object) -> None:
        if where not in told:
            told.add(where)
            say(f"{where}: {error}")

    threads = _threads(plan, run_id, readings, once)
    name = os.environ.get(environment.RUN_NAME, run_id)
    export = ReadingsExport(readings, read_anchor(), name, otlp_exporter(os.environ))
    for thread in threads:
        thread.start()
    begun = False
    end_s = None if duration_s is None else time.monotonic() + duration_s
    while not stop.wait(_EXPORT_S if end_s is None else max(0.0, min(_EXPORT_S, end_s - time.monotonic()))):
        if not export.export():
            once("OTLP endpoint", "does not take metrics; is a collector listening there?")
        if not begun and (export.sent or export.failed):
            begun = True
            on_begun()
        if end_s is not None and time.monotonic() >= end_s:
            break
    for thread in threads:
        thread.stop()
    export.close()
    return Sampled(export.sent, export.failed, readings.dropped)


def _threads(
    plan: Plan, run_id: str, readings: Channel[Reading], on_fault: Callable[[str, BaseException], None]
) -> list[Sampling]:
    """Servers each have a thread of their own, since one that is slow must not hold back the devices."""
    from stepmeter.samplers import rapl
    from stepmeter.samplers.energy import EnergySampling
    from stepmeter.samplers.host import HostSampler
    from stepmeter.samplers.inference import InferenceSampler
    from stepmeter.samplers.lock import DeviceLock
    from stepmeter.samplers.nvml import GpuSampler

    def reading(uuid: str) -> Callable[[], Sampler]:
        return lambda: GpuSampler(lambda: uuid)

    def scraping(url: str, engine: Engine) -> Callable[[], Sampler]:
        return lambda: InferenceSampler(
            url, engine, on_failure=lambda words: on_fault(url, RuntimeError(f"{words}; it is asked again and again"))
        )

    makers: list[Callable[[], Sampler]] = [HostSampler, *(reading(uuid) for uuid in plan.uuids)]
    made: list[Sampling] = [Sampling(makers, readings, on_fault, plan.interval_s)]
    reading_rapl = functools.partial(rapl.RaplSampler, lock=DeviceLock(run_id, rapl.LOCK_NAME))
    made.append(Sampling([reading_rapl], readings, on_fault, min(plan.interval_s, rapl.INTERVAL_S)))
    for uuid in plan.uuids:
        following = EnergySampling(_always(uuid), run_id, readings, on_fault, watches_processes=False)
        made.append(following)  # type: ignore[arg-type] # the same start and stop
    if plan.engine is not None:
        made += [Sampling([scraping(url, plan.engine)], readings, on_fault, plan.interval_s) for url in plan.scrape]
    return made


def _always(uuid: str) -> Callable[[], str]:
    return lambda: uuid
