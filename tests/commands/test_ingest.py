"""Tests of `stepmeter ingest`: what a stock Collector's file exporter writes."""

from __future__ import annotations

import base64
import gzip
import json

import pytest
from google.protobuf import json_format
from tests.support.otlp import logs, metrics, run_resource, span, step_span, traces

from stepmeter.cli import main
from stepmeter.store.reader import find_run, open_run


def as_json(message):
    """A request as OTLP JSON: protobuf's JSON with ids in hexadecimal and enums as numbers."""
    document = json_format.MessageToDict(message, use_integers_for_enums=True)

    def fix(value):
        if isinstance(value, list):
            return [fix(item) for item in value]
        if isinstance(value, dict):
            ids = {"traceId", "spanId", "parentSpanId"}
            return {k: base64.b64decode(v).hex() if k in ids else fix(v) for k, v in value.items()}
        return value

    return json.dumps(fix(document)).encode()


def framed(*messages):
    """Requests as protobuf with lengths."""
    bodies = [message.SerializeToString() for message in messages]
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def gauge(resource=None):
    request, found = metrics(resource)
    metric = found.add(name="m")
    metric.gauge.data_points.add(time_unix_nano=1, as_int=5)
    return request


def rows(directory, sql, run="run-1"):
    with open_run(find_run(run, directory)) as reader:
        return reader.snapshot().rows(sql)


def test_json_lines_and_framed_protobuf_become_runs(tmp_path, capsys):
    """JSON lines, protobuf with lengths and gzip of either lead to the same rows, whatever signal is in them."""
    (tmp_path / "t.jsonl").write_bytes(as_json(traces(step_span(1))) + b"\n\n" + as_json(traces(step_span(2))) + b"\n")
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(as_json(traces(step_span(3)))))
    (tmp_path / "t.pb").write_bytes(framed(traces(step_span(4)), traces(step_span(5))))
    (tmp_path / "m.pb").write_bytes(framed(gauge()))
    (tmp_path / "l.pb").write_bytes(framed(logs("hello")))
    files = [str(tmp_path / name) for name in ("t.jsonl", "t.jsonl.gz", "t.pb", "m.pb", "l.pb")]
    assert main(["ingest", *files, "--dir", str(tmp_path / "runs")]) == 0
    assert "7 requests" in capsys.readouterr().err
    assert rows(tmp_path / "runs", "SELECT step FROM steps ORDER BY step") == [(1,), (2,), (3,), (4,), (5,)]
    assert rows(tmp_path / "runs", "SELECT trace_id FROM steps WHERE step = 1") == [(f"{1000:032x}",)]
    assert rows(tmp_path / "runs", "SELECT metric, value FROM metrics") == [("m", 5.0)]
    assert rows(tmp_path / "runs", "SELECT body FROM logs") == [("hello",)]


def test_a_file_that_was_read_before_adds_nothing(tmp_path, capsys):
    """Reading a file again, in another process's stead, adds no row."""
    (tmp_path / "t.jsonl").write_bytes(as_json(traces(step_span(1), span("x"))))
    for _ in range(2):
        assert main(["ingest", str(tmp_path / "t.jsonl"), "--dir", str(tmp_path / "runs")]) == 0
    assert "1 requests known already" in capsys.readouterr().err
    assert rows(tmp_path / "runs", "SELECT count(*) FROM raw.spans") == [(1,)]


def test_telemetry_without_a_run_goes_where_it_is_told(tmp_path):
    """What names no run goes to --run, named by --run-name, and else to `unassigned`."""
    file = tmp_path / "t.jsonl"
    file.write_bytes(as_json(traces(span("chat"), resource=run_resource(None))))
    assert main(["ingest", str(file), "--dir", str(tmp_path / "a"), "--run", "r", "--run-name", "base"]) == 0
    assert main(["ingest", str(file), "--dir", str(tmp_path / "b")]) == 0
    assert rows(tmp_path / "a", "SELECT name FROM spans", "base") == [("chat",)]
    assert rows(tmp_path / "b", "SELECT name FROM spans", "unassigned") == [("chat",)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"resourceSpans": 5}', "f:1: not a JSON traces request"),
        (b'{"resourceThings": []}', "f:1: no resourceSpans, resourceMetrics or resourceLogs"),
        (b"{", "f:1: no resourceSpans"),
        (b"\x00\x00\xff\xff12", "f: byte 0: cut short or no length"),
        (b"\x00\x00\x00\x02\xff\xff", "f: byte 0: neither traces, metrics nor logs"),
        (b"\x00\x00\x00\x06\x28\xb5\x2f\xfd12", "f: byte 0: compressed with zstd"),
    ],
)
def test_what_cannot_be_read_is_named_and_the_rest_is_kept(tmp_path, capsys, content, message):
    """A broken request is one line with its place and code 4; what was whole is in the store."""
    (tmp_path / "f").write_bytes(content)
    (tmp_path / "good").write_bytes(as_json(traces(step_span(1))))
    assert main(["ingest", str(tmp_path / "f"), str(tmp_path / "good"), "--dir", str(tmp_path / "runs")]) == 4
    error = capsys.readouterr().err
    assert message in error
    assert "1 request could not be taken" in error
    assert rows(tmp_path / "runs", "SELECT step FROM steps") == [(1,)]


def test_a_file_that_is_not_there_is_one_line(tmp_path, capsys):
    """A missing file stops everything before it begins."""
    assert main(["ingest", str(tmp_path / "none"), "--dir", str(tmp_path)]) == 2
    assert main(["ingest", __file__, "--run-name", "x", "--dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_it_says_into_which_run_and_what_comes_next(tmp_path, capsys):
    """Each run that something was added to is named; what was known already adds to none."""
    file = tmp_path / "f"
    file.write_bytes(framed(gauge(run_resource())))

    assert main(["ingest", str(file), "--dir", str(tmp_path / "runs")]) == 0
    run = tmp_path / "runs" / "run-1"
    assert f"into {run}; next: stepmeter summary {run}\n" in capsys.readouterr().err


def test_a_file_of_something_else_is_told_in_few_lines(tmp_path, capsys):
    """Of a thousand lines that are no OTLP ten are told, then how many more."""
    (tmp_path / "notes.txt").write_text("{}\n" * 1000)

    assert main(["ingest", str(tmp_path / "notes.txt"), "--dir", str(tmp_path / "runs")]) == 4
    told = capsys.readouterr().err
    assert told.count("\n") == 13
    assert "stepmeter ingest: and 990 more like these\n" in told
    assert "1000 requests could not be taken" in told


def test_a_name_whose_lines_no_store_has_taken_is_said_so(tmp_path, capsys, monkeypatch):
    """A program without a collector leaves a folder of lines; asked for, it is told how they become a run."""
    monkeypatch.chdir(tmp_path)
    lines = tmp_path / "stepmeter-runs" / "sft-1" / "otlp"
    lines.mkdir(parents=True)
    (lines / "default.rank0.jsonl").write_bytes(as_json(gauge(run_resource())) + b"\n")

    for reference in ("sft-1", "stepmeter-runs/sft-1"):
        assert main(["summary", reference]) == 3
        assert capsys.readouterr().err.endswith(": stepmeter ingest stepmeter-runs/sft-1/otlp/*.jsonl\n")


def test_a_compressed_file_that_was_cut_short_is_read_up_to_there(tmp_path, capsys):
    """A copy that is not whole, or is no gzip behind its first bytes, is a problem of that file and of no other."""
    lines = b"".join(as_json(gauge(run_resource())) + b"\n" for _ in range(3))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(lines)[:-8])
    (tmp_path / "odd.gz").write_bytes(b"\x1f\x8bgarbage")

    assert main(["ingest", str(tmp_path / "cut.gz"), str(tmp_path / "odd.gz"), "--dir", str(tmp_path / "runs")]) == 4

    told = capsys.readouterr().err
    assert told.count("not whole as gzip") == 2
    assert "3 requests, " in told


def test_a_directory_that_is_none_is_one_line(tmp_path, capsys):
    """Runs can't be put into a file."""
    file = tmp_path / "f"
    file.write_bytes(framed(gauge(run_resource())))

    assert main(["ingest", str(file), "--dir", str(file)]) == 2
    assert capsys.readouterr().err.endswith("expected files to read and a directory to write, see --dir\n")
