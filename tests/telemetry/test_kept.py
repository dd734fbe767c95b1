from pathlib import Path

import pytest
from tests.support.otlp import step_span, traces

from stepmeter.cli import main
from stepmeter.store.reader import find_run, open_run
from stepmeter.telemetry.kept import KeptRequests, kept_requests


def test_what_was_kept_can_be_ingested(tmp_path):
    """Requests that were kept, one of them twice, come out of `stepmeter ingest` as their steps."""
    kept = KeptRequests(tmp_path / "otlp" / "kept.binpb")
    assert not kept.path.exists()
    for number in (1, 2, 2):
        assert kept.keep(traces(step_span(number)).SerializeToString(), 1)
    assert kept.items == 3
    assert main(["ingest", str(kept.path), "--dir", str(tmp_path / "runs")]) == 0
    with open_run(find_run("run-1", tmp_path / "runs")) as reader:
        assert reader.snapshot().rows("SELECT step FROM steps ORDER BY step") == [(1,), (2,)]


def test_a_place_that_cannot_be_written_keeps_nothing(tmp_path):
    """Where the folder can't be made, nothing is kept and nothing raises."""
    (tmp_path / "otlp").write_text("", encoding="utf-8")
    kept = KeptRequests(tmp_path / "otlp" / "kept.binpb")
    assert not kept.keep(b"request", 1)
    assert kept.items == 0


@pytest.mark.parametrize(
    ("environ", "run_dir", "folder"),
    [
        ({"STEPMETER_RUN_DIR": "/runs/a-2", "STEPMETER_DIR": "/runs", "STEPMETER_RUN_NAME": "a"}, None, "/runs/a-2"),
        ({"STEPMETER_DIR": "/runs", "STEPMETER_RUN_NAME": "a"}, None, "/runs/a"),
        ({"STEPMETER_DIR": "/runs"}, None, "/runs/id"),
        ({"STEPMETER_DIR": "/runs"}, Path("/mine/b"), "/mine/b"),
        ({}, Path("/mine/b"), "/mine/b"),
    ],
)
def test_the_place_is_the_run_directory(environ, run_dir, folder):
    """What is kept lies in the run's directory, wherever that was said to be."""
    assert kept_requests(environ, "id", 3, run_dir).path.parent == Path(folder) / "otlp"


def test_nothing_is_kept_where_nobody_said_where():
    """Without a directory of runs no file is made anywhere."""
    assert kept_requests({}, "id", 0, None) is None
