from __future__ import annotations

from tests.support.processes import PROGRAMS, query, stepmeter


def test_spawned_ranks(tmp_path):
    """Ranks that `mp.spawn` starts learn their number, world and strategy from torch, from their first step on."""
    done = stepmeter("run", PROGRAMS / "spawned.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = query(
        tmp_path / "stepmeter-runs" / "spawned",
        """SELECT rank, world_size, strategy, count(*), min(step), max(step) FROM steps
           GROUP BY ALL ORDER BY rank""",
    )
    assert rows == [(0, 2, "ddp", 5, 1, 5), (1, 2, "ddp", 5, 1, 5)]
