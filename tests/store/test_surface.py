"""Tests of what a query may name: golden surface, documented queries, ClickHouse's names, stores of older versions."""

from __future__ import annotations

import copy
import json
import re
import shutil
import tarfile
from pathlib import Path

import duckdb
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from tests.support.otlp import key_values, logs, metrics, run_resource, span, step_span, traces
from tests.support.rows import MS, step_row

from stepmeter.collector.decode import RunKey
from stepmeter.collector.duckdb_processor import DuckdbProcessor
from stepmeter.collector.health import Health
from stepmeter.collector.journal import Record
from stepmeter.collector.otlp import LOGS, METRICS, TRACES, Encoding
from stepmeter.errors import CheckFailedError
from stepmeter.store import reference
from stepmeter.store.compaction import compact
from stepmeter.store.reader import open_run
from stepmeter.store.schema import STEPS
from stepmeter.store.seal import seal
from stepmeter.store.segments import complete_run, write_segment

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "queries.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
SAMPLES = sorted((Path(__file__).parent / "samples").glob("v*.tar.gz"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two ranks with some of everything, through the processor."""
    directory = tmp_path_factory.mktemp("runs")
    processor = DuckdbProcessor(directory, RunKey("run-1", "demo"), Health())
    for signal, request in _telemetry():
        processor.accept(Record(signal, Encoding.PROTOBUF, request.SerializeToString()))
    processor.close()
    return directory / "demo"


def _telemetry():
    resource = run_resource(**{"service.instance.id": "one"})
    event = span("chat", number=7, start_ns=20 * MS, attributes={"gen_ai.request.model": "m", "stepmeter.step": 2})
    event.events.add(name="token", time_unix_nano=5, attributes=key_values({"n": 1}))
    event.links.add(trace_id=b"\x01" * 16, span_id=b"\x02" * 8)
    failed = span("load", number=8)
    failed.status.code, failed.status.message = 2, "no such file"
    steps = [
        step_span(step, rank=rank, **{"stepmeter.samples": 8, "stepmeter.phase.forward.cpu_ns": (3 + rank) * MS})
        for step in (1, 2, 3)
        for rank in (0, 1)
    ]
    yield TRACES, traces(*steps, event, failed, resource=resource)
    request, found = metrics(resource)
    counter = found.add(name="stepmeter.steps", unit="{step}")
    counter.sum.aggregation_temporality, counter.sum.is_monotonic = 2, True
    for second in (1, 2):
        point = counter.sum.data_points.add(time_unix_nano=second * 10**9, as_int=second * 10)
        point.attributes.extend(key_values({"rank": 0}))
        point.exemplars.add(as_double=0.5, span_id=b"\x01" * 8)
    power = found.add(name="hw.power", unit="W").gauge.data_points.add(time_unix_nano=10**9, as_double=250.0)
    power.attributes.extend(key_values({"hw.id": "GPU-1"}))
    histogram = found.add(name="stepmeter.step.duration", unit="s").histogram
    histogram.aggregation_temporality = 1
    histogram.data_points.add(time_unix_nano=1, count=3, sum=1.5, bucket_counts=[1, 2], explicit_bounds=[0.5], min=0.1)
    exponential = found.add(name="e").exponential_histogram.data_points.add(time_unix_nano=1, count=1, scale=3)
    exponential.positive.bucket_counts.append(1)
    summary = found.add(name="s").summary.data_points.add(time_unix_nano=1, count=2, sum=3.0)
    summary.quantile_values.add(quantile=0.5, value=1.5)
    yield METRICS, request
    yield LOGS, logs("careful", severity_number=13, severity_text="WARN", resource=resource)
    alert = logs("loss stalled", severity_text="WARN", event_name="stepmeter.alert", resource=resource)
    alert.resource_logs[0].scope_logs[0].log_records[0].attributes.extend(
        key_values({"stepmeter.alert.rule": "stalled(loss[50]) => warn", "stepmeter.step": 3})
    )
    yield LOGS, alert
    row = LogRecord(event_name="stepmeter.row", time_unix_nano=MS, attributes=key_values({"stepmeter.step": 1}))
    row.attributes.add(key="stepmeter.values").value.kvlist_value.values.extend(key_values({"loss": 0.5}))
    request = logs(resource=resource)
    request.resource_logs[0].scope_logs.add().log_records.append(row)
    yield LOGS, request


def ask(run, sql):
    with open_run(run) as reader:
        return reader.snapshot().answer(sql)


def test_arrows_are_in_brackets_where_something_is_compared():
    """DuckDB 1.5, all that Python 3.10 gets, reads `a AND b ->> c = d` as `(a AND b) ->> (c = d)`."""
    bare = re.compile(r"(?<![\w.(])[\w.]+ ->> '[^']*' (?:=|IN|IS|GLOB|LIKE|<|>)")
    files = [PAGE, *(ROOT / "src").rglob("*.sql")]
    assert [file.name for file in files if bare.search(file.read_text(encoding="utf-8"))] == []


def test_there_are_twenty_queries():
    """The page has twenty queries, and one for those who come from ClickHouse."""
    assert len(QUERIES) == 21


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_every_documented_query_answers(run, number):
    """Each query of the page runs as a person would run it, and finds something."""
    answer = ask(run, QUERIES[number])
    assert answer.rows
    assert answer.columns


def test_documented_queries_answer_any_client_and_once_sealed(run, tmp_path):
    """The same queries give the same answers to a plain client, and once the run is sealed."""
    copied = tmp_path / "copy"
    shutil.copytree(run, copied)
    seal(copied)
    with duckdb.connect(str(run / "run.duckdb"), read_only=True) as connection:
        for sql in QUERIES:
            expected = sorted(map(str, connection.execute(sql).fetchall()))
            assert sorted(map(str, ask(run, sql).rows)) == expected
            assert sorted(map(str, ask(copied, sql).rows)) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        # queries of the exporter's own README and of dashboards for it, in the part of SQL that both have
        ("SELECT count(*) FROM otel_traces WHERE SpanName = 'step' AND SpanAttributes['stepmeter.rank'] = '1'", [(3,)]),
        (
            """SELECT SpanName, SpanAttributes['gen_ai.request.model'], SpanAttributes['stepmeter.step']
            FROM otel_traces WHERE SpanName = 'chat' AND Duration > 1000000""",
            [("chat", "m", "2")],
        ),
        ("SELECT StatusMessage FROM otel_traces WHERE StatusCode = 'Error'", [("no such file",)]),
        (
            'SELECT "Events.Name", "Events.Attributes"[1][\'n\'] FROM otel_traces WHERE len("Events.Name") > 0',
            [(["token"], "1")],
        ),
        ('SELECT "Links.TraceId" FROM otel_traces WHERE len("Links.TraceId") > 0', [(["01" * 16],)]),
        ("SELECT DISTINCT ResourceAttributes['host.name'], ServiceName FROM otel_traces", [("host", "train")]),
        (
            "SELECT ParentSpanId, TraceState, SpanKind, ScopeName FROM otel_traces WHERE SpanName = 'load'",
            [("", "", "Internal", "stepmeter")],
        ),
        (
            "SELECT Body, SeverityText, SeverityNumber FROM otel_logs WHERE SeverityNumber > 0",
            [("careful", "WARN", 13)],
        ),
        (
            "SELECT LogAttributes['stepmeter.step'], EventName FROM otel_logs WHERE EventName <> ''",
            [("3", "stepmeter.alert")],
        ),
        (
            "SELECT MetricName, Value, Attributes['hw.id'], MetricUnit FROM otel_metrics_gauge",
            [("hw.power", 250.0, "GPU-1", "W")],
        ),
        (
            """SELECT MetricName, max(Value), AggregationTemporality, IsMonotonic, any_value(Attributes['rank'])
            FROM otel_metrics_sum GROUP BY ALL""",
            [("stepmeter.steps", 20.0, 2, True, "0")],
        ),
        ('SELECT "Exemplars.Value" FROM otel_metrics_sum LIMIT 1', [([0.5],)]),
        (
            "SELECT Count, Sum, BucketCounts, ExplicitBounds, AggregationTemporality FROM otel_metrics_histogram",
            [(3, 1.5, [1, 2], [0.5], 1)],
        ),
        ("SELECT Count, Scale, PositiveBucketCounts FROM otel_metrics_exponential_histogram", [(1, 3, [1])]),
        ('SELECT Count, "ValueAtQuantiles.Value" FROM otel_metrics_summary', [(2, [1.5])]),
        ("SELECT level, message, rule, step FROM alerts", [("WARN", "loss stalled", "stalled(loss[50]) => warn", 3)]),
        ("SELECT epoch_ns(\"Timestamp\") FROM otel_traces WHERE SpanName = 'chat'", [(20 * MS,)]),
    ],
)
def test_queries_for_clickhouse_find_the_same_names(run, sql, expected):
    """A query that was written for the ClickHouse exporter's tables works on the views of its names."""
    assert ask(run, sql).rows == expected


def test_the_surface_is_the_golden_one(update_golden):
    """The SQL surface is that of the golden file, and its page is up to date."""
    if update_golden:
        reference.update(ROOT)
    reference.check(ROOT)


def test_every_column_says_what_it_is():
    """No view and no column of the surface is without words."""
    for name, view in reference.describe()["views"].items():
        assert view["comment"], name
        assert all(column["comment"] for column in view["columns"].values()), name


def test_a_name_that_went_needs_a_new_version(tmp_path):
    """Removing or retyping a column without a new store version is refused; adding one is not."""
    now = reference.describe()
    before = copy.deepcopy(now)
    del now["views"]["steps"]["columns"]["rank"]
    now["views"]["steps"]["columns"]["step"]["type"] = "VARCHAR"
    now["views"]["steps"]["columns"]["new"] = {"type": "BIGINT", "comment": "new"}
    del now["views"]["alerts"]
    assert reference.breaking_changes(before, now) == [
        "steps.rank is gone",
        "steps.step was BIGINT and is VARCHAR",
        "alerts is gone",
    ]
    golden = tmp_path / reference.GOLDEN
    golden.parent.mkdir(parents=True)
    before["views"]["steps"]["columns"]["old"] = {"type": "BIGINT", "comment": "old"}
    golden.write_text(json.dumps(before))
    for act in (reference.check, reference.update):
        with pytest.raises(CheckFailedError, match=r"steps\.old is gone"):
            act(tmp_path)


@pytest.fixture(params=SAMPLES, ids=lambda path: path.name)
def old_run(request, tmp_path):
    """A stored run of an older version."""
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "demo"


def contents(run):
    with open_run(run) as reader:
        snapshot = reader.snapshot()
        return (
            snapshot.rows("SELECT step FROM steps ORDER BY step"),
            snapshot.rows("SELECT name FROM spans ORDER BY ALL"),
            snapshot.rows("SELECT metric, value, exemplars FROM metrics"),
            snapshot.rows("SELECT metric, count FROM histograms"),
            snapshot.rows("SELECT count(*) FROM logs"),
            [(mark.recorded_steps, mark.last_step) for mark in snapshot.watermark()],
        )


def test_a_stored_run_of_every_version_opens_and_migrates(old_run):
    """A run of an older version is read as it is; a collector that goes on with it migrates it."""
    version = json.loads((old_run / "run.json").read_text())["store_version"]
    assert version < reference.STORE_VERSION
    before = contents(old_run)
    assert before[:1] == ([(1,), (2,), (3,)],)
    complete_run(old_run)
    assert contents(old_run) == before
    assert json.loads((old_run / "run.json").read_text())["migrated_from"] == version
    write_segment(old_run, STEPS, [step_row(3), step_row(4)], "host-0", 3)
    assert compact(old_run, "host-0", 4, fold=3)
    assert contents(old_run)[0] == [(1,), (2,), (3,), (4,)]
    with duckdb.connect(str(old_run / "run.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM steps").fetchone() == (4,)
        assert connection.execute("SELECT exemplars FROM metrics").fetchall() == [(None,)]
    assert seal(old_run)
    assert contents(old_run)[0] == [(1,), (2,), (3,), (4,)]


def test_there_is_a_stored_run_of_each_older_version():
    """Every version before the present one has its sample."""
    assert [path.name.split("-")[0] for path in SAMPLES] == [f"v{n}" for n in range(1, reference.STORE_VERSION)]
