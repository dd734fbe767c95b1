import os
from pathlib import Path

import pytest
from tests.support.processes import PROGRAMS, query, stepmeter


def processes_of(marker):
    """Ids of other processes whose environment holds a marker."""
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if marker in environ_of(process)]


def environ_of(process):
    try:
        return b"" if int(process.name) == os.getpid() else (process / "environ").read_bytes()
    except OSError:  # it has ended
        return b""


@pytest.mark.slow
def test_workers_of_every_kind_say_nothing_and_leave_nothing(tmp_path):
    """With workers that fork, spawn or come from a fork server, and pools in the dataset, one process sends, once."""
    marker = f"STEPMETER_TEST_MARKER={tmp_path}"
    done = stepmeter(
        *("run", "--quiet", PROGRAMS / "workers.py"),
        cwd=tmp_path,
        OTEL_METRIC_EXPORT_INTERVAL="50",
        STEPMETER_TEST_MARKER=str(tmp_path),
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("alive True ")
    run = tmp_path / "stepmeter-runs" / "workers"
    assert query(run, "SELECT count(*), count(DISTINCT step), max(step) FROM raw.steps") == [(32, 32, 32)]
    assert query(run, "SELECT count(DISTINCT pid) FROM raw.resources") == [(1,)]
    assert query(
        run,
        """SELECT metric, max(coalesce(int_value, double_value)), count(DISTINCT resource_id) FROM raw.metric_points
           WHERE metric IN ('user.counter', 'stepmeter.steps') GROUP BY metric ORDER BY metric""",
    ) == [("stepmeter.steps", 32.0, 1), ("user.counter", 32.0, 1)]
    assert processes_of(marker.encode()) == []
