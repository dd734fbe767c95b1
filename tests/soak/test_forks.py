import pytest
from tests.support.processes import PROGRAMS, query, stepmeter


@pytest.mark.slow
def test_three_hundred_forks_while_metrics_are_collected(tmp_path):
    """Of 300 children forked during collection none hangs, and no counter arrives twice or under a second process."""
    done = stepmeter("run", "--quiet", PROGRAMS / "forks.py", cwd=tmp_path, OTEL_METRIC_EXPORT_INTERVAL="10")

    assert (done.returncode, done.stdout, done.stderr) == (0, "stuck 0\n", "")
    run = tmp_path / "stepmeter-runs" / "forks"
    assert query(
        run,
        """SELECT metric, max(coalesce(int_value, double_value)), count(DISTINCT resource_id) FROM raw.metric_points
           WHERE metric IN ('user.counter', 'stepmeter.steps') GROUP BY metric ORDER BY metric""",
    ) == [("stepmeter.steps", 300.0, 1), ("user.counter", 300.0, 1)]
    assert query(run, "SELECT count(*), count(DISTINCT step) FROM raw.steps") == [(300, 300)]
