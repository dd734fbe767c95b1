"""Resource detectors: the run and its rank, the GPU, the allocator. What is unknown is absent, never guessed."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from opentelemetry.sdk.resources import Resource, ResourceDetector

from stepmeter.capture.clock import ClockAnchor, boot_id
from stepmeter.capture.identity import identity_from_environ
from stepmeter.capture.run import run_id_from_environ
from stepmeter.conventions import environment
from stepmeter.conventions import resource as words
from stepmeter.conventions.attributes import (
    ATTEMPT,
    HW_ID,
    LOCAL_RANK,
    LOCAL_WORLD_SIZE,
    NODE_RANK,
    RANK,
    STRATEGY,
    WORLD_SIZE,
    Attribute,
)
from stepmeter.devices.nvml import find_device

_ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
Value = str | int | float | bool


class RunResourceDetector(ResourceDetector):
    """Which run this process belongs to, its rank, and the anchor of its clock."""

    def detect(self) -> Resource:
        """Read the environment and the installed metadata.

        Returns:
            Run, rank, host, process, torch and clock attributes.
        """
        return _resource(run_attributes(os.environ))


class GpuResourceDetector(ResourceDetector):
    """The GPU of this rank as NVML describes it."""

    def detect(self) -> Resource:
        """Ask NVML.

        Returns:
            Device attributes; empty without a GPU.
        """
        return _resource(gpu_attributes(os.environ))


class AllocatorResourceDetector(ResourceDetector):
    """How torch's caching allocator is set up."""

    def detect(self) -> Resource:
        """Read the allocator's environment variables.

        Returns:
            Allocator attributes; empty when the variables are not set.
        """
        return _resource(allocator_attributes(os.environ))


def run_attributes(environ: Mapping[str, str]) -> dict[Attribute, Value | None]:
    """Attributes of the run and this process's place in it.

    Args:
        environ: The environment.

    Returns:
        Attribute → value; None where it is unknown.
    """
    identity = identity_from_environ(environ)
    return {
        words.RUN_ID: run_id_from_environ(environ),
        words.RUN_NAME: environ.get(environment.RUN_NAME),
        words.PROJECT: environ.get(environment.PROJECT),
        words.HOST_NAME: socket.gethostname(),
        words.PROCESS_PID: os.getpid(),
        ATTEMPT: identity.attempt,
        RANK: identity.rank,
        LOCAL_RANK: identity.local_rank,
        NODE_RANK: identity.node_rank,
        WORLD_SIZE: identity.world_size,
        LOCAL_WORLD_SIZE: identity.local_world_size,
        STRATEGY: identity.strategy,
        words.TORCH_VERSION: _torch_version(),
        words.CUDA_VERSION: _cuda_version(),
    }


def gpu_attributes(environ: Mapping[str, str]) -> dict[Attribute, Value | None]:
    """Attributes of this rank's GPU.

    Args:
        environ: The environment.

    Returns:
        Attribute → value; None where it is unknown; empty without a GPU.
    """
    device = find_device(environ, identity_from_environ(environ).local_rank or 0).device
    if device is None:
        return {}
    return {
        HW_ID: device.uuid,
        words.HW_TYPE: "gpu",
        words.HW_NAME: device.name,
        words.HW_VENDOR: "NVIDIA",
        words.HW_DRIVER_VERSION: device.driver_version,
        words.GPU_MEMORY_LIMIT: device.memory_limit_bytes,
        words.GPU_POWER_LIMIT: device.power_limit_w,
        words.GPU_MIG: device.mig,
    }


def allocator_attributes(environ: Mapping[str, str]) -> dict[Attribute, Value | None]:
    """Attributes of torch's caching allocator.

    Args:
        environ: The environment.

    Returns:
        Attribute → value; None where the configuration does not say; empty without one.

    Source:
        PyTorch notes, "Optimizing memory usage with PYTORCH_ALLOC_CONF".
    """
    text = next((environ[name] for name in _ALLOCATOR_VARIABLES if environ.get(name)), None)
    if text is None:
        return {}
    options = dict(re.findall(r"(\w+)\s*:\s*([^,\[\]]+)", text))
    fraction = None
    with contextlib.suppress(KeyError, ValueError):
        fraction = float(options["per_process_memory_fraction"])
    return {
        words.ALLOCATOR_BACKEND: options.get("backend"),
        words.ALLOCATOR_CONFIG: text,
        words.ALLOCATOR_MEMORY_FRACTION: fraction,
    }


def clock_attributes(anchor: ClockAnchor) -> dict[Attribute, Value | None]:
    """Attributes that let a reader re-base the times of several processes.

    Args:
        anchor: The process's anchor.

    Returns:
        Attribute → value; None where it is unknown.
    """
    return {
        words.CLOCK_ANCHOR_UNIX: anchor.unix_ns,
        words.CLOCK_ANCHOR_MONOTONIC: anchor.monotonic_ns,
        words.CLOCK_BOOT_ID: boot_id(),
    }


def step_resource(configured: Resource | None, anchor: ClockAnchor) -> Resource:
    """The resource of our own spans and metrics.

    All our detectors run whether or not the SDK was told of them; what the user's provider says goes before them.

    Args:
        configured: The resource of the user's provider, if there is one.
        anchor: The process's anchor.

    Returns:
        The merged resource.
    """
    theirs = configured if configured is not None else Resource.create()
    attributes = clock_attributes(anchor)
    if words.TORCH_VERSION.key not in theirs.attributes:  # else our detectors have run, and reading metadata is slow
        environ = os.environ
        attributes |= run_attributes(environ) | gpu_attributes(environ) | allocator_attributes(environ)
    # merged here, since Resource.merge refuses two schema URLs and would lose one side
    return Resource({**_known(attributes), **theirs.attributes}, theirs.schema_url)


def _resource(attributes: Mapping[Attribute, Value | None]) -> Resource:
    return Resource(_known(attributes))


def _known(attributes: Mapping[Attribute, Value | None]) -> dict[str, Value]:
    return {attribute.key: value for attribute, value in attributes.items() if value is not None}


def _torch_version() -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version("torch")
    return None


def _cuda_version() -> str | None:
    """Read torch's version file as text: importing torch here would cost every helper process seconds."""
    with contextlib.suppress(importlib.metadata.PackageNotFoundError, OSError):
        path = importlib.metadata.distribution("torch").locate_file("torch/version.py")
        found = re.search(r"^cuda[^=]*=\s*'([\d.]+)'", Path(str(path)).read_text(encoding="utf-8"), re.MULTILINE)
        return found.group(1) if found else None
    return None
