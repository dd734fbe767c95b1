"""Which run a process belongs to, by its environment."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, MutableMapping

from stepmeter.conventions import environment

_LAUNCHER_VARIABLES = ("TORCHELASTIC_RUN_ID", "RAY_JOB_ID", "KUBEFLOW_TRAINING_JOB_ID")
_NO_ID = frozenset({"", "none"})


def run_id_from_environ(environ: Mapping[str, str]) -> str | None:
    """Read the run's identity.

    Args:
        environ: The environment.

    Returns:
        STEPMETER_RUN_ID, else what a launcher set for all ranks (torchrun, srun, Ray, Kubeflow), else None.
    """
    own = environ.get(environment.RUN_ID, "")
    if own not in _NO_ID:
        return own
    if "SLURM_JOB_ID" in environ and "SLURM_STEP_ID" in environ:
        return f"{environ['SLURM_JOB_ID']}.{environ['SLURM_STEP_ID']}"
    return next((environ[name] for name in _LAUNCHER_VARIABLES if environ.get(name, "") not in _NO_ID), None)


def ensure_run_id(environ: MutableMapping[str, str]) -> str:
    """Settle the run's identity and leave it to the processes that this one starts.

    Args:
        environ: The environment; STEPMETER_RUN_ID is set in it when it is not.

    Returns:
        The identity.
    """
    run_id = run_id_from_environ(environ) or new_run_id()
    environ.setdefault(environment.RUN_ID, run_id)
    return run_id


def new_run_id() -> str:
    """Make a new identity.

    Returns:
        For instance `20261130-075113-9f86d081`: sortable by start, in UTC.
    """
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
