import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stepmeter.cli import main
from stepmeter.store.reader import find_run, open_run

PROGRAM = """
import sys
import stepmeter
stepmeter.init("demo", "r", span_count=True, alert_rules=["loss > 2 => error: loss is {loss}"])
for loss in (1, 3, float("nan")):
    with stepmeter.span("forward", rows=3):
        with stepmeter.span("attn"):
            pass
    stepmeter.log({"loss": loss})
stepmeter.finish()
"""
SPANS = "SELECT name, count(*), any_value(step >= 0) FROM spans WHERE name <> 'run' GROUP BY name ORDER BY name"
ROWS = 'SELECT step, attempt, stream, rank, "values" FROM history ORDER BY step'


def environ(directory):
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("STEPMETER_", "OTEL_"))}
    return {**kept, "STEPMETER_DIR": str(directory)}


def found(run):
    with open_run(run) as reader:
        snapshot = reader.snapshot()
        return snapshot.rows(SPANS), snapshot.rows(ROWS), snapshot.rows("SELECT level, message, step FROM alerts")


def check(spans, rows, alerts):
    assert spans == [("attn", 3, True), ("forward", 3, True)]
    assert [row[:4] for row in rows] == [(step, 0, None, 0) for step in range(3)]
    values = [json.loads(row[4]) for row in rows]
    assert [each["loss"] for each in values] == [1, 3, "NaN"]
    assert all(each["count/forward/attn"] == 1 for each in values)
    assert alerts == [("ERROR", "loss is 3", 1)]


def test_rows_spans_and_alerts_go_to_the_store(tmp_path):
    """Under `stepmeter run` what a program logs is in the store when it has ended, typed and labelled."""
    stepmeter = str(Path(sys.executable).parent / "stepmeter")
    command = [stepmeter, "run", "--name", "r", "--", sys.executable, "-c", PROGRAM]
    subprocess.run(command, env=environ(tmp_path), capture_output=True, check=True, timeout=100)

    check(*found(find_run("r", tmp_path)))


def test_lines_of_a_run_without_a_collector_can_be_ingested(tmp_path, capsys):
    """What a run wrote without a collector is the same in the store once it is ingested."""
    subprocess.run([sys.executable, "-c", PROGRAM], env=environ(tmp_path / "lines"), check=True, timeout=100)
    (lines,) = (tmp_path / "lines").glob("r/otlp/*.jsonl")
    assert main(["ingest", str(lines), "--dir", str(tmp_path / "store")]) == 0

    check(*found(find_run("r", tmp_path / "store")))


def test_rows_that_no_backend_takes_are_kept_as_lines(tmp_path):
    """With an endpoint where nobody listens the program goes on, and its rows are lines in the run directory."""
    dead = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environ(tmp_path), **dead},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    assert done.returncode == 0
    kept = list(tmp_path.glob("r/otlp/*.jsonl"))
    if not kept:
        pytest.fail(done.stderr)
    assert kept[0].read_text().count('"eventName":"stepmeter.row"') == 3


LONG = """
import time, stepmeter
run = stepmeter.init(name="r", alert_window=4)
for number in range(12):
    stepmeter.log({"x": number, "bad": float("nan")})
run.history.flush()
end = time.monotonic() + 60
while len(found := stepmeter.history(-1)) < 12 and time.monotonic() < end:
    time.sleep(0.5)
print([row["x"] for row in found], found[0]["bad"], [row["x"] for row in stepmeter.history(6)])
"""


def test_history_goes_beyond_memory_into_the_store(tmp_path):
    """Under `stepmeter run` rows that memory no longer has come from the run's own store."""
    stepmeter = str(Path(sys.executable).parent / "stepmeter")
    command = [stepmeter, "run", "--quiet", "--name", "r", "--", sys.executable, "-c", LONG]
    done = subprocess.run(command, env=environ(tmp_path), capture_output=True, text=True, check=True, timeout=100)

    assert done.stdout.strip() == f"{[*range(12)]} nan {[*range(6, 12)]}", done.stderr
