"""What reads beside a training: samplers once a second, and the one that follows the device's energy counter."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Protocol

from stepmeter.capture.channel import Channel
from stepmeter.capture.reading import Reading
from stepmeter.capture.run import ensure_run_id
from stepmeter.capture.step import Recorder
from stepmeter.samplers.sampling import Sampler, Sampling

READINGS_CAPACITY = 8192
"""Readings that wait for the drain: counter ticks of a device are up to 80 a second, and an export may be late."""


class _Thread(Protocol):
    """A thread that reads."""

    cpu_time_s: float

    def start(self) -> None: ...

    def stop(self) -> None: ...


class Background:
    """All background reading of one process.

    Args:
        recorder: Knows the rank and, once CUDA is up, the device.
        environ: The environment, to find the device before that.
        on_fault: Told of what no one expected, by a name and the error.
    """

    def __init__(
        self, recorder: Recorder, environ: Mapping[str, str], on_fault: Callable[[str, BaseException], None]
    ) -> None:
        from stepmeter.devices.nvml import load_nvml
        from stepmeter.samplers import rapl
        from stepmeter.samplers.energy import EnergySampling
        from stepmeter.samplers.lock import DeviceLock

        self.readings: Channel[Reading] = Channel(READINGS_CAPACITY)
        find_uuid = _device_finder(recorder, environ)
        run_id = ensure_run_id(dict(environ))
        self._threads: list[_Thread] = [Sampling(background_samplers(recorder, find_uuid), self.readings, on_fault)]
        if not (recorder.identity.local_rank or 0) and rapl.POWERCAP.exists():
            one_reader = DeviceLock(run_id, rapl.LOCK_NAME)
            make = functools.partial(rapl.RaplSampler, lock=one_reader)
            self._threads.append(Sampling([make], self.readings, on_fault, rapl.INTERVAL_S))
        if load_nvml():
            self._threads.append(EnergySampling(find_uuid, run_id, self.readings, on_fault))

    @property
    def cpu_time_s(self) -> float:
        """CPU time of all its threads, in s."""
        return sum(thread.cpu_time_s for thread in self._threads)

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Tell the threads to end; does not wait for a reading under way."""
        for thread in self._threads:
            thread.stop()


def load_ahead() -> None:
    """Import on the program's own thread what our threads need.

    A fork while another thread imports leaves the child a module that is half loaded, and whatever the child then does
    with it fails.
    """
    from stepmeter.devices.nvml import load_nvml

    for module in ("email.parser", "encodings.ascii"):  # what reading installed metadata and the boot's id takes
        importlib.import_module(module)
    load_nvml()


def background_samplers(recorder: Recorder, find_uuid: Callable[[], str | None]) -> list[Callable[[], Sampler]]:
    """Choose the samplers of this process.

    Args:
        recorder: Knows the rank.
        find_uuid: Says which device is ours.

    Returns:
        What makes each sampler: the process's and its device's on every rank, the host's on one rank a node.
    """
    from stepmeter.devices.nvml import load_nvml
    from stepmeter.samplers.host import HostSampler, ProcessSampler
    from stepmeter.samplers.nvml import GpuSampler

    makers: list[Callable[[], Sampler]] = [ProcessSampler]
    if load_nvml():
        makers.append(lambda: GpuSampler(find_uuid))
    return [HostSampler, *makers] if (recorder.identity.local_rank or 0) == 0 else makers


def _device_finder(recorder: Recorder, environ: Mapping[str, str]) -> Callable[[], str | None]:
    """What NVML can find at start, until CUDA says which device it is; looked for once, on a sampler's thread."""
    found: list[str | None] = []

    def find() -> str | None:
        from stepmeter.devices.nvml import find_device

        if recorder.identity.hw_id is not None:
            return recorder.identity.hw_id
        if not found:
            device = find_device(environ, recorder.identity.local_rank or 0).device
            found.append(device.uuid if device else None)
        return found[0]

    return find
