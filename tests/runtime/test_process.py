import pytest

from stepmeter.runtime.process import is_helper, is_launcher, is_switched_off


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "-c", "from multiprocessing.resource_tracker import main;main(5)"],
        ["python", "-c", "from multiprocessing.forkserver import main; main(6, 7, ['__main__'])"],
        ["python", "/lib/torch/_inductor/compile_worker/__main__.py", "--workers=2"],
        ["python", "-m", "pip", "install", "torch"],
    ],
)
def test_helpers_are_recognised(arguments):
    """Processes that only help another one are left alone."""
    assert is_helper(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "train.py"],
        ["python", "-m", "torch.distributed.run", "train.py"],
        ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=7)"],
        ["python", "-m", "train", "-m", "pip"],
        ["python"],
        [],
    ],
)
def test_programs_are_no_helpers(arguments):
    """Programs, launchers and spawned trainers are not taken for helpers."""
    assert not is_helper(arguments)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["python", "/venv/bin/torchrun", "--nproc-per-node=2", "train.py"], True),
        (["python", "-u", "/venv/bin/accelerate", "launch", "train.py"], True),
        (["python", "-m", "torch.distributed.run", "train.py"], True),
        (["python", "train.py", "torchrun"], False),
        (["python", "train.py", "-m", "torch.distributed.run"], False),
        (["python", "-m", "train", "torchrun"], False),
        (["python"], False),
        ([], False),
    ],
)
def test_launchers_are_told_from_programs(arguments, expected):
    """A launcher is known by the first thing that its Python runs, and by nothing in a program's arguments."""
    assert is_launcher(arguments) is expected


@pytest.mark.parametrize("name", ["STEPMETER_DISABLED", "OTEL_SDK_DISABLED"])
@pytest.mark.parametrize(
    ("value", "expected"), [("1", True), ("True", True), ("0", False), ("", False), ("off", False)]
)
def test_switches(name, value, expected):
    """Either switch turns everything off with a true value and with no other."""
    assert expected is is_switched_off({name: value})
