"""Attributes of the resource: the run, its rank, its host, its device and its allocator."""

from __future__ import annotations

from typing import Final

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

RUN_ID: Final = Attribute("stepmeter.run.id", "string", "Identity of the run, the same on all ranks.", required=True)
RUN_NAME: Final = Attribute("stepmeter.run.name", "string", "Name of the run for people; names its directory.")
PROJECT: Final = Attribute("stepmeter.project", "string", "Project that the run belongs to.")

SERVICE_NAME: Final = Attribute("service.name", "string", "Logical name of the service.", required=True)
SERVICE_INSTANCE_ID: Final = Attribute("service.instance.id", "string", "Identity of the process.")
HOST_NAME: Final = Attribute("host.name", "string", "Name of the host.", required=True)
PROCESS_PID: Final = Attribute("process.pid", "int", "Process id.", required=True)

HW_TYPE: Final = Attribute("hw.type", "string", "Kind of the device: gpu, cpu, memory.")
HW_NAME: Final = Attribute("hw.name", "string", "Product name of the device.")
HW_VENDOR: Final = Attribute("hw.vendor", "string", "Vendor of the device.")
HW_DRIVER_VERSION: Final = Attribute("hw.driver_version", "string", "Version of the device's driver.")
GPU_MEMORY_LIMIT: Final = Attribute("stepmeter.gpu.memory.limit", "int", "Memory of the device.", "By")
GPU_POWER_LIMIT: Final = Attribute("stepmeter.gpu.power.limit", "double", "Enforced power limit of the device.", "W")
GPU_MIG: Final = Attribute("stepmeter.gpu.mig", "boolean", "Whether the device is a MIG instance.")

ALLOCATOR_BACKEND: Final = Attribute(
    "stepmeter.allocator.backend", "string", "Backend of torch's CUDA allocator: native or cudaMallocAsync."
)
ALLOCATOR_CONFIG: Final = Attribute(
    "stepmeter.allocator.config", "string", "The allocator's configuration as given in the environment."
)
ALLOCATOR_MEMORY_FRACTION: Final = Attribute(
    "stepmeter.allocator.memory_fraction",
    "double",
    "Share of the device memory that this process may take.",
    "1",
)
TORCH_VERSION: Final = Attribute("stepmeter.torch.version", "string", "Version of torch that is installed.")
CUDA_VERSION: Final = Attribute("stepmeter.cuda.version", "string", "CUDA version that torch was built for.")

CLOCK_ANCHOR_UNIX: Final = Attribute(
    "stepmeter.clock.anchor_unix_ns", "int", "Wall clock at the anchor, Unix time.", "ns", required=True
)
CLOCK_ANCHOR_MONOTONIC: Final = Attribute(
    "stepmeter.clock.anchor_monotonic_ns", "int", "Monotonic clock at the anchor.", "ns", required=True
)
CLOCK_BOOT_ID: Final = Attribute(
    "stepmeter.clock.boot_id", "string", "Boot of the machine, to whose monotonic clock the anchor belongs."
)

RESOURCE_ATTRIBUTES: Final = (
    SERVICE_NAME,
    SERVICE_INSTANCE_ID,
    HOST_NAME,
    PROCESS_PID,
    RUN_ID,
    RUN_NAME,
    PROJECT,
    ATTEMPT,
    RANK,
    LOCAL_RANK,
    NODE_RANK,
    WORLD_SIZE,
    LOCAL_WORLD_SIZE,
    STRATEGY,
    HW_ID,
    HW_TYPE,
    HW_NAME,
    HW_VENDOR,
    HW_DRIVER_VERSION,
    GPU_MEMORY_LIMIT,
    GPU_POWER_LIMIT,
    GPU_MIG,
    ALLOCATOR_BACKEND,
    ALLOCATOR_CONFIG,
    ALLOCATOR_MEMORY_FRACTION,
    TORCH_VERSION,
    CUDA_VERSION,
    CLOCK_ANCHOR_UNIX,
    CLOCK_ANCHOR_MONOTONIC,
    CLOCK_BOOT_ID,
)
"""Everything our resource detectors may set."""
