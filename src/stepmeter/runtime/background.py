"""Which samplers read beside a training."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepmeter.capture.step import Recorder
from stepmeter.samplers.sampling import Sampler


def background_samplers(recorder: Recorder, environ: Mapping[str, str]) -> list[Callable[[], Sampler]]:
    """Choose the samplers of this process.

    Args:
        recorder: Knows the rank and, once CUDA is up, the device.
        environ: The environment, to find the device before that.

    Returns:
        What makes each sampler: the process's and its device's on every rank, the host's on one rank a node.
    """
    from stepmeter.samplers.host import HostSampler, ProcessSampler
    from stepmeter.samplers.nvml import GpuSampler

    local_rank = recorder.identity.local_rank or 0

    def make_gpu_sampler() -> Sampler:
        from stepmeter.devices.nvml import find_device

        device = find_device(environ, local_rank).device
        at_start = device.uuid if device else None
        return GpuSampler(lambda: recorder.identity.hw_id or at_start)

    makers: list[Callable[[], Sampler]] = [ProcessSampler, make_gpu_sampler]
    return [HostSampler, *makers] if local_rank == 0 else makers
