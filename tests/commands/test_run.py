import json
import os
import shutil
import signal
import sys

import duckdb
import pytest
from tests.support.processes import BIN, TINY, query, start_stepmeter, stepmeter

from stepmeter.cli import main
from stepmeter.commands.run import default_name, resolve
from stepmeter.errors import UsageError


def run_dir(tmp_path, name="tiny"):
    return tmp_path / "stepmeter-runs" / name


def summary(tmp_path, name="tiny"):
    return json.loads((run_dir(tmp_path, name) / "final_summary.json").read_text(encoding="utf-8"))


def test_a_plain_script_comes_out_with_a_verdict(tmp_path):
    """A script that knows nothing of us runs unchanged, and its steps, verdict and store are there afterwards."""
    done = stepmeter("run", TINY, "--steps", 30, cwd=tmp_path)

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 30
    assert all(line.startswith("step ") for line in done.stdout.splitlines())
    assert "30 steps" in done.stderr or "29 steps" in done.stderr
    assert "stepmeter summary stepmeter-runs/tiny" in done.stderr
    assert query(run_dir(tmp_path), "SELECT count(*), min(step), max(step), min(samples), max(samples) FROM steps") == [
        (30, 1, 30, 4, 4)
    ]
    document = summary(tmp_path)
    assert document["step_time"]["issues"][0] == document["step_time"]["diagnosis"]
    assert document["step_time"]["metadata"]["training_latest_step"] == 30


def test_every_phase_is_seen_on_every_step(tmp_path):
    """Input wait, forward, backward and optimizer are measured once a step and stay within the step."""
    stepmeter("run", TINY, "--steps", 10, cwd=tmp_path)

    assert query(
        run_dir(tmp_path),
        """SELECT count(*) FROM steps
           WHERE input_wait_count = 1 AND forward_count = 1 AND backward_count = 1 AND optimizer_count = 1
             AND h2d_cpu_ns IS NULL AND traced_gpu_ns IS NULL AND peak_allocated_bytes IS NULL
             AND forward_cpu_ns + backward_cpu_ns + optimizer_cpu_ns <= traced_cpu_ns
             AND input_wait_cpu_ns + traced_cpu_ns = end_ns - start_ns""",
    ) == [(10,)]


def test_results_are_the_same_with_and_without(tmp_path):
    """The program prints the same losses to the last digit under stepmeter and under plain Python."""
    with_us = stepmeter("run", "--quiet", TINY, "--steps", 20, cwd=tmp_path)
    without = stepmeter("run", "--quiet", TINY, "--steps", 20, cwd=tmp_path, STEPMETER_DISABLED="1")

    assert with_us.stdout == without.stdout
    assert not without.stderr


@pytest.mark.parametrize(("end", "code"), [("raise", 1), ("exit3", 3), ("sigterm", 128 + signal.SIGTERM)])
def test_the_commands_exit_code_is_ours(tmp_path, end, code):
    """A program that raises, exits with a code or is killed gives its own exit code, and the verdict all the same."""
    done = stepmeter("run", TINY, "--steps", 30, "--sleep", 0.05, "--end", end, cwd=tmp_path)

    assert code == done.returncode
    assert "stepmeter summary" in done.stderr
    assert query(run_dir(tmp_path), "SELECT count(*) FROM steps")[0][0] >= 10
    assert ("the program's own error" in done.stderr) == (end == "raise")


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_is_passed_on_and_the_verdict_given(tmp_path, name):
    """A signal sent to stepmeter ends the program, whose steps so far get their verdict."""
    process = start_stepmeter("run", TINY, "--steps", 2000, "--sleep", 0.02, cwd=tmp_path)
    for _ in range(100):
        process.stdout.readline()
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=60)

    assert process.returncode in {1, 128 + signal.Signals[name]}
    assert "stepmeter summary" in err
    assert query(run_dir(tmp_path), "SELECT count(*) FROM steps")[0][0] >= 50


def test_two_ranks_of_torchrun_are_one_run(tmp_path):
    """Under torchrun both ranks land in one run, share the trace of a step and are known as DDP."""
    torchrun = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node=2"]
    done = stepmeter("run", "--name", "ddp", "--", *torchrun, TINY, "--steps", 10, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    rows = query(
        run_dir(tmp_path, "ddp"),
        "SELECT rank, count(*), max(world_size), max(strategy) FROM steps WHERE step > 1 GROUP BY rank ORDER BY rank",
    )
    assert rows == [(0, 9, 2, "ddp"), (1, 9, 2, "ddp")]
    assert query(run_dir(tmp_path, "ddp"), "SELECT count(DISTINCT trace_id) FROM steps") == [(10,)]
    assert summary(tmp_path, "ddp")["meta"]["world_size"] == 2
    assert query(run_dir(tmp_path, "ddp"), "SELECT count(DISTINCT resource_id) FROM raw.resources") == [(2,)]


def test_a_collector_that_cannot_start_is_one_line(tmp_path):
    """Where no store can be made, that is one line on stderr and the program runs as it would alone."""
    (tmp_path / "taken").write_text("a file, not a directory", encoding="utf-8")
    done = stepmeter("run", "--dir", "taken", TINY, "--steps", 3, cwd=tmp_path)

    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 3
    assert len(done.stderr.splitlines()) == 1
    assert "the command runs without telemetry" in done.stderr


def test_a_configuration_that_is_wrong_is_one_line(tmp_path):
    """A collector that would not understand its configuration is told of before the program starts, in one line."""
    (tmp_path / "wrong.yaml").write_text("receivers: {nothing: {}}", encoding="utf-8")
    done = stepmeter("run", "--config", "wrong.yaml", "--", sys.executable, "-c", "print('hello')", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert len(done.stderr.splitlines()) == 1
    assert "wrong.yaml" in done.stderr
    assert "the command runs without telemetry" in done.stderr


def test_a_program_shorter_than_the_collectors_start(tmp_path):
    """The program does not wait for the collector, and what it sends in its first moments is there all the same."""
    program = "import stepmeter\nfor _ in range(5):\n    with stepmeter.span('brief'): pass"
    done = stepmeter("run", "--quiet", "--name", "brief", "--", sys.executable, "-c", program, cwd=tmp_path)

    assert done.returncode == 0
    assert query(run_dir(tmp_path, "brief"), "SELECT count(*) FROM spans WHERE name = 'brief'") == [(5,)]


def test_a_collector_that_ends_early_is_told_of_once(tmp_path):
    """When the collector dies while the program runs, that is said at that moment, once, and the program goes on."""
    program = (
        "import os, pathlib, signal, subprocess, time\n"
        "pids = subprocess.run(['pgrep', '-P', str(os.getppid()), '-f', 'collect'], capture_output=True, text=True)\n"
        "os.kill(int(pids.stdout.split()[0]), signal.SIGKILL)\n"
        "time.sleep(1)\n"
        "print('went on')\n"
    )
    done = stepmeter("run", "--quiet", "--name", "early", "--", sys.executable, "-c", program, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "went on\n")
    assert [line for line in done.stderr.splitlines() if "the collector" in line] == [
        "stepmeter: the collector failed: SIGKILL ended it"
    ]


def test_a_run_without_a_step_says_so(tmp_path):
    """A program that never trains gets a verdict that says that there was no step, and its own exit code."""
    done = stepmeter("run", "--name", "nothing", "--", sys.executable, "-c", "print('hello')", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "NO DATA" in done.stderr or "NO-DATA" in done.stderr
    assert summary(tmp_path, "nothing")["step_time"]["diagnosis"]["kind"] == "NO_DATA"


def test_quiet_writes_files_only(tmp_path):
    """With --quiet nothing is printed and the summary is written all the same."""
    done = stepmeter("run", "--quiet", TINY, "--steps", 3, cwd=tmp_path)

    assert not done.stderr
    assert (run_dir(tmp_path) / "final_summary.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ([], "no command to run"),
        (["nothere.py"], "no script 'nothere.py'"),
        (["no-such-program"], "no program 'no-such-program'"),
        (["--no-such-option", "x.py"], "--no-such-option"),
    ],
)
def test_bad_commands_are_one_line(tmp_path, words, part):
    """Nothing to run, a missing script, an unknown program or option: one line, exit code 2, nothing left behind."""
    done = stepmeter("run", *words, cwd=tmp_path)

    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert part in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_switched_off_only_runs_the_command(tmp_path):
    """Switched off, no collector starts and nothing is written."""
    done = stepmeter("run", TINY, "--steps", 2, cwd=tmp_path, OTEL_SDK_DISABLED="true")

    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_no_process_is_left(tmp_path):
    """The collector ends with the run."""
    stepmeter("run", TINY, "--steps", 2, cwd=tmp_path)

    left = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/cmdline", encoding="utf-8") as file:  # noqa: PTH123
                    left.append(file.read())
            except OSError:
                continue
    assert not [line for line in left if str(run_dir(tmp_path).parent) in line]


def test_a_py_file_runs_with_this_python(tmp_path, monkeypatch):
    """A .py file runs with this Python, a program with its full path, and a leading -- is left out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()

    assert [sys.executable, "train.py", "--", "x"] == resolve(["train.py", "--", "x"])
    assert resolve(["--", "/bin/sh", "-c", "true"]) == ["/bin/sh", "-c", "true"]
    with pytest.raises(UsageError):
        resolve(["--"])


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["dir/train.py", "--x"], "train"),
        (["--", "torchrun", "--nproc-per-node=2", "train.py"], "train"),
        (["accelerate", "launch"], "accelerate"),
        (["python", "-m", "project.train", "--x"], "project.train"),
        (["torchrun", "-m"], "torchrun"),
    ],
)
def test_a_run_is_named_after_its_script(words, name):
    """A run takes the name of its first script or of its module, else of its program."""
    assert name == default_name(words)


def test_a_finished_run_is_one_portable_file(tmp_path):
    """After the verdict the run is sealed: its run.duckdb holds the steps itself and may be copied anywhere."""
    stepmeter("run", "--quiet", "--html", TINY, "--steps", 5, cwd=tmp_path)
    copy = shutil.copy(run_dir(tmp_path) / "run.duckdb", tmp_path / "elsewhere.duckdb")
    shutil.rmtree(run_dir(tmp_path) / "data", ignore_errors=True)

    with duckdb.connect(str(copy), read_only=True) as connection:
        assert connection.execute("SELECT count(*), max(step) FROM steps").fetchall() == [(5, 5)]
    assert "<html" in (run_dir(tmp_path) / "final_summary.html").read_text(encoding="utf-8")


def test_a_run_that_others_share_stays_open(tmp_path):
    """A run whose id a launcher gave is not sealed, since other nodes and later attempts write to it."""
    for attempt in (0, 1):
        stepmeter(
            "run", "--quiet", TINY, "--steps", 5, cwd=tmp_path, STEPMETER_RUN_ID="job-7", STEPMETER_ATTEMPT=str(attempt)
        )

    assert query(run_dir(tmp_path), "SELECT attempt, count(*) FROM steps GROUP BY 1 ORDER BY 1") == [(0, 5), (1, 5)]


def test_a_program_without_training_is_told_what_to_ask(tmp_path):
    """Spans alone give no word on optimizers: the verdict counts them, and the commands at the end are about them."""
    script = tmp_path / "agent.py"
    script.write_text("import stepmeter\nwith stepmeter.span('task'):\n    pass\n", encoding="utf-8")

    done = stepmeter("run", script, cwd=tmp_path)

    assert "NO TRAINING  info\nwhy   The run holds no training step, but 1 span of its own.\n" in done.stderr
    assert "\n  stepmeter energy stepmeter-runs/agent --spans task\n" in done.stderr
    assert "FROM steps" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--no-collector", "--html"], "--html needs the collector's store; leave out --no-collector, or --html"),
        (["--no-collector", "--live"], "--live needs the collector's store"),
        (["--no-collector", "--config", "c.yaml"], "--config needs the collector's store"),
        (["--live", "--quiet"], "argument --quiet: not allowed with argument --live"),
    ],
)
def test_options_that_exclude_one_another_are_one_line(options, message, capsys):
    """What would be ignored is refused before the program starts."""
    assert main(["run", *options, "--", "true"]) == 2

    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_run_keeps_its_name_without_a_collector(tmp_path):
    """`--name` reaches the backend, and `--dir` says where lines go that no backend took."""
    show = "import os; print(os.environ['STEPMETER_RUN_NAME'], os.environ['STEPMETER_DIR'])"

    done = stepmeter(
        "run", "--no-collector", "--name", "n", "--dir", "d", "--", sys.executable, "-c", show, cwd=tmp_path
    )

    assert done.stdout == "n d\n"


@pytest.mark.parametrize(("name", "told"), [("SIGKILL", True), ("SIGSEGV", True), ("SIGINT", False)])
def test_a_signal_that_ended_the_program_is_told(tmp_path, name, told):
    """A shell says that its command was killed; behind us it can't, so that we do. Who pressed Ctrl-C knows."""
    ending = f"import os, signal; signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.{name})"

    done = stepmeter("run", "--quiet", "--", sys.executable, "-c", ending, cwd=tmp_path)

    assert done.returncode == 128 + signal.Signals[name]
    assert done.stderr == (f"stepmeter: {name} ended the command\n" if told else "")
