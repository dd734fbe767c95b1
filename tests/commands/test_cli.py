import os
import subprocess
import sys

import pytest
from tests.support.processes import TINY, clean_environ, query, stepmeter

from stepmeter import cli


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(name, capsys):
    """`stepmeter COMMAND --help` exits with 0, says what the command does and shows an example."""
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])

    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert f"example:\n  stepmeter {name}" in out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "COMMAND"),
        (["nonsense"], 'no command "nonsense"; `stepmeter --help` lists the commands'),
        (["sumary", "x"], "did you mean summary?"),
        (["train.py"], "`stepmeter run train.py`"),
        (["summary"], "RUN"),
        (["summary", "x", "--nonsense"], "--nonsense"),
        (["schema", "--format", "yaml"], "yaml"),
    ],
)
def test_wrong_usage_is_one_line(words, part, capsys):
    """Unknown commands, options and values are one line on stderr that names them, and exit code 2."""
    code = cli.main(words)

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert part in err


@pytest.mark.parametrize("command", [["summary"], ["sql"]])
def test_an_unknown_run_is_one_line(command, capsys, tmp_path, monkeypatch):
    """A run that does not exist is one line and exit code 3."""
    monkeypatch.chdir(tmp_path)
    code = cli.main([*command, "no-such-run", *(["SELECT 1"] if command == ["sql"] else [])])

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "no-such-run" in err


def test_a_closed_pipe_is_no_error():
    """Output into `head` that ends early is no traceback."""
    shell = f"{sys.executable} -m stepmeter.cli schema | head -c 10 >{os.devnull}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False, env=clean_environ())

    assert (done.returncode, done.stderr) == (0, "")


def test_output_that_has_no_room_is_one_line():
    """A disk that is full is said, with exit code 1 and no traceback."""
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        command = [sys.executable, "-m", "stepmeter.cli", "schema"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=clean_environ())

    assert (done.returncode, done.stderr) == (1, "stepmeter: [Errno 28] No space left on device\n")


def test_nonsense_in_cuda_visible_devices_changes_nothing(tmp_path):
    """Nonsense in CUDA_VISIBLE_DEVICES leaves the device absent and everything else as it is."""
    done = stepmeter("run", "--quiet", TINY, "--steps", 4, cwd=tmp_path, CUDA_VISIBLE_DEVICES="nonsense,,-7")

    assert (done.returncode, done.stderr) == (0, "")
    assert query(tmp_path / "stepmeter-runs" / "tiny", "SELECT count(*), count(hw_id) FROM steps") == [(4, 0)]
