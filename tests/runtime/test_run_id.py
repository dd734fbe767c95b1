import pytest

from stepmeter.capture.run import ensure_run_id, new_run_id, run_id_from_environ


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"STEPMETER_RUN_ID": "mine", "TORCHELASTIC_RUN_ID": "job"}, "mine"),
        ({"TORCHELASTIC_RUN_ID": "job"}, "job"),
        ({"TORCHELASTIC_RUN_ID": "none", "RAY_JOB_ID": "ray"}, "ray"),
        ({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}, "7.0"),
        ({"SLURM_JOB_ID": "7"}, None),
        ({"STEPMETER_RUN_ID": ""}, None),
    ],
)
def test_launchers_name_the_run(environ, expected):
    """Ours first, then torchrun's unless it says none, srun's job and step, Ray's."""
    assert expected == run_id_from_environ(environ)


def test_a_new_id_is_kept_for_the_children():
    """Where nobody named the run, a new id is made once and left in the environment."""
    environ = {}

    assert ensure_run_id(environ) == environ["STEPMETER_RUN_ID"] == ensure_run_id(environ)


def test_new_ids_differ():
    """Two runs that start in the same second differ."""
    assert new_run_id() != new_run_id()
