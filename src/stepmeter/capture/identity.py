"""Which rank of which attempt this process is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from stepmeter.conventions import environment

# The first that is set and makes sense wins: torchrun and its kin, Slurm, Open MPI, MPICH's Hydra.
_RANK: Final = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
# SLURM_NTASKS is set in a batch script that starts a single process too; the step's count only by srun.
_WORLD_SIZE: Final = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_LOCAL_WORLD_SIZE: Final = (
    "LOCAL_WORLD_SIZE",
    "SLURM_STEP_TASKS_PER_NODE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
)
_NODE_RANK: Final = ("GROUP_RANK", "NODE_RANK", "SLURM_NODEID", "OMPI_COMM_WORLD_NODE_RANK")
_STARTS: Final = (environment.ATTEMPT, "SLURM_RESTART_COUNT")
_RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this process is within its run; None where it is not known.

    Attributes:
        attempt: Which start of the run this is, from 0.
        rank: Global rank, from 0.
        local_rank: Rank within the node.
        node_rank: Rank of the node.
        world_size: Number of ranks, at least 1.
        local_world_size: Number of ranks on this node.
        strategy: How the ranks share the work: single, ddp, fsdp.
        hw_id: UUID of the GPU on which this process trains.
    """

    attempt: int = 0
    rank: int = 0
    local_rank: int | None = None
    node_rank: int | None = None
    world_size: int = 1
    local_world_size: int | None = None
    strategy: str | None = None
    hw_id: str | None = None


def identity_from_environ(environ: Mapping[str, str]) -> Identity:
    """Read what the launcher said.

    Args:
        environ: The environment of the process.

    Returns:
        The identity; nonsense values count as absent, and a rank outside its world makes it rank 0 of 1.
    """
    rank, world_size = _rank_and_world(environ)
    return Identity(
        attempt=max(_number(environ.get(name)) or 0 for name in _STARTS) + restarts(environ),
        rank=rank,
        local_rank=_first(environ, _LOCAL_RANK),
        node_rank=_first(environ, _NODE_RANK),
        world_size=world_size,
        local_world_size=_first(environ, _LOCAL_WORLD_SIZE, least=1),
    )


def restarts(environ: Mapping[str, str]) -> int:
    """How often the launcher has started this process anew within one start of its own.

    Args:
        environ: The environment of the process.

    Returns:
        torchrun's count; a torchrun that is itself started anew begins at 0 again.
    """
    return _number(environ.get(_RESTARTS)) or 0


def _rank_and_world(environ: Mapping[str, str]) -> tuple[int, int]:
    # Each launcher's pair is taken whole: torchrun's RANK and Slurm's task count disagree inside one job.
    for rank_name, world_name in zip(_RANK, _WORLD_SIZE, strict=True):
        rank, world_size = _number(environ.get(rank_name)), _number(environ.get(world_name), least=1)
        if rank is not None and world_size is not None and rank < world_size:
            return rank, world_size
    return 0, 1


def _first(environ: Mapping[str, str], names: tuple[str, ...], least: int = 0) -> int | None:
    numbers = (_number(environ.get(name), least) for name in names)
    return next((number for number in numbers if number is not None), None)


def _number(text: str | None, least: int = 0) -> int | None:
    if text is None or not text.strip().isdecimal():
        return None
    number = int(text)
    return number if number >= least else None
