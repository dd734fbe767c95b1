from __future__ import annotations

import pytest

from stepmeter.capture.identity import Identity, identity_from_environ


def test_nothing_said():
    """Without a launcher a process is rank 0 of 1 and nothing else is known."""
    assert identity_from_environ({}) == Identity()
    assert Identity().local_rank is None


def test_torchrun():
    """What torchrun sets is read, its restart count being the attempt."""
    environ = {
        "RANK": "5",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "1",
        "WORLD_SIZE": "8",
        "LOCAL_WORLD_SIZE": "4",
        "TORCHELASTIC_RESTART_COUNT": "2",
    }
    assert identity_from_environ(environ) == Identity(2, 5, 1, 1, 8, 4)


def test_slurm():
    """Under srun the task's number and count are the rank and the world."""
    environ = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
    assert identity_from_environ(environ) == Identity(0, 3, 1, 1, 4)


def test_single_process_of_a_batch_script():
    """A lone process in a Slurm batch script, which srun did not start, is rank 0 of 1."""
    assert identity_from_environ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}).world_size == 1


def test_torchrun_inside_slurm():
    """Torchrun's pair wins over Slurm's."""
    environ = {"RANK": "6", "WORLD_SIZE": "8", "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}
    identity = identity_from_environ(environ)
    assert (identity.rank, identity.world_size) == (6, 8)


@pytest.mark.parametrize(
    ("rank", "world_size"), [("x", "2"), ("-1", "2"), ("2", "2"), ("0", "0"), ("", ""), ("1", None), ("1.0", "2")]
)
def test_nonsense_is_absent(rank, world_size):
    """A rank that is no rank of its world counts as absent."""
    environ = {"RANK": rank} | ({} if world_size is None else {"WORLD_SIZE": world_size})
    assert identity_from_environ(environ) == Identity()


@pytest.mark.parametrize(
    ("environ", "attempt"),
    [
        ({}, 0),
        ({"TORCHELASTIC_RESTART_COUNT": "2"}, 2),
        ({"SLURM_RESTART_COUNT": "1"}, 1),
        ({"STEPMETER_ATTEMPT": "3"}, 3),
        ({"STEPMETER_ATTEMPT": "3", "SLURM_RESTART_COUNT": "1"}, 3),
        ({"STEPMETER_ATTEMPT": "3", "TORCHELASTIC_RESTART_COUNT": "2"}, 5),
    ],
)
def test_attempts(environ, attempt):
    """The larger of our count of starts and Slurm's holds; what torchrun restarts within one comes on top."""
    assert identity_from_environ(environ).attempt == attempt
