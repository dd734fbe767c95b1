from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from tests.step_time.scenarios import SCENARIOS
from tests.support.step_time import RunBuilder

from stepmeter.errors import StoreError
from stepmeter.report.summary import SUMMARY_VERSION, summarize, write_files

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SECTIONS = ("system", "process", "step_time", "step_memory", "energy")


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """The summary of every scenario, through a store."""
    directory = tmp_path_factory.mktemp("runs")
    return {
        name: summarize(scenario.build().write(directory, run_id=name, name=name), NOON).document
        for name, scenario in BY_NAME.items()
    }


@pytest.mark.parametrize("name", BY_NAME)
def test_the_summary_tells_what_the_analysis_found(documents, name):
    """Kinds, severities, ranks, clock and steps are those of the contract."""
    section = documents[name]["step_time"]
    window = section["global"]["window"]

    issues = [(issue["kind"], issue["severity"], tuple(issue["ranks"])) for issue in section["issues"]]
    assert issues == [(kind, severity, ranks) for kind, severity, _, ranks in BY_NAME[name].issues]
    assert (window["start_step"], window["end_step"], window["steps_analyzed"]) == BY_NAME[name].steps
    assert window["clock"] == BY_NAME[name].clock
    assert documents[name]["primary_diagnosis"]["kind"] == BY_NAME[name].primary


@pytest.mark.parametrize("name", BY_NAME)
def test_all_sections_have_one_outer_shape(documents, name):
    """Each has the same keys, at least one issue, and its first issue as diagnosis."""
    shapes = {tuple(documents[name][section]) for section in SECTIONS}
    metadata = {tuple(documents[name][section]["metadata"]) for section in SECTIONS}
    windows = {tuple(documents[name][section]["global"]["window"]) for section in SECTIONS}

    assert shapes == {("metadata", "diagnosis", "issues", "global", "groups", "units", "card")}
    assert (len(metadata), len(windows)) == (1, 1)
    for section in SECTIONS:
        assert documents[name][section]["issues"][0] == documents[name][section]["diagnosis"]


def test_the_document_has_its_keys_in_order(documents):
    """A reader finds the version first and the text last."""
    document = documents["complete_gpu"]

    assert list(document) == [
        "schema_version",
        "generated_at",
        "duration_s",
        "meta",
        "primary_diagnosis",
        "system",
        "process",
        "step_time",
        "step_memory",
        "energy",
        "text",
    ]
    assert (document["schema_version"], document["generated_at"]) == (SUMMARY_VERSION, "2026-01-01T12:00:00+00:00")
    assert document["meta"] == {
        "run_id": "complete_gpu",
        "run_name": "complete_gpu",
        "mode": "single_node",
        "world_size": 2,
        "nodes_observed": 1,
        "gpus_observed": 2,
    }


def test_null_is_never_measured_and_zero_is_measured(documents):
    """Rank 1 of one run lacks forward, that of another measured 0.0."""
    missing, measured = (
        documents[name]["step_time"]["groups"]["rows"]["1"]["metrics"]["forward_ms"]
        for name in ("sparse_missing_forward", "measured_zero_forward")
    )

    assert missing is None
    assert measured == 0.0


def test_the_median_is_a_real_ranks_value(documents):
    """Steps take 140 and 160 ms; the representative is rank 0 with 140, not 150."""
    totals = documents["fsdp_rank_straggler"]["step_time"]["global"]

    assert totals["median"]["step_time_ms"] == {"value": 140.0, "idx": 0}
    assert totals["worst"]["step_time_ms"] == {"value": 160.0, "idx": 1}
    assert totals["average"]["step_time_ms"] == 150.0


def test_without_a_gpu_there_is_no_gpu_and_with_one_no_analysis_yet(documents):
    """Sections without data say so."""
    assert documents["single_rank_cpu"]["step_memory"]["diagnosis"]["kind"] == "NO_GPU"
    assert documents["complete_gpu"]["step_memory"]["diagnosis"]["kind"] == "NO_DATA"
    assert set(documents["complete_gpu"]["step_memory"]["global"]["average"].values()) == {None}
    assert documents["complete_gpu"]["energy"]["metadata"]["mode"] == "no_data"
    assert documents["complete_gpu"]["energy"]["diagnosis"]["kind"] == "NO_DATA"


def test_energy_per_step_stands_in_the_summary_with_its_bound(tmp_path):
    """Steps of 200 ms at 500 W take 100 J each; 50 of them 5 kJ."""
    builder = RunBuilder(gpu=True, strategy="single").rank(0, range(1, 51))
    builder.read("hw.power", *[500.0] * 12, hw_id="GPU-0", hw_type="gpu")

    summary = summarize(builder.write(tmp_path))

    metrics = summary.document["energy"]["groups"]["rows"]["0"]["metrics"]
    assert (metrics["step_energy_mj"], metrics["total_energy_mj"]) == (100_000.0, 5_000_000.0)
    assert metrics["sample_energy_mj"] is None
    assert "\nenergy per step 100 J +-" in summary.text()


def test_a_promised_rank_without_steps_is_in_the_groups(tmp_path):
    """Its row is there, and everything in it is null."""
    document = summarize(RunBuilder(world_size=2).rank(0, range(1, 5)).write(tmp_path)).document

    row = document["step_time"]["groups"]["rows"]["1"]
    assert set(row["metrics"].values()) == {None}
    assert row["identity"]["hostname"] is None


def test_a_missing_node_is_told(tmp_path):
    """A world of four with two ranks a node makes two nodes, of which one reported."""
    builder = RunBuilder(world_size=4, local_world_size=2).rank(0, range(1, 25)).rank(1, range(1, 25))

    metadata = summarize(builder.write(tmp_path)).document["step_time"]["metadata"]

    assert [metadata[f"nodes_{what}"] for what in ("expected", "observed", "coverage", "partial")] == [2, 1, 0.5, True]


def test_a_run_without_steps_has_a_summary(tmp_path):
    """It says NO_DATA and what to check, and every number that was not measured is null."""
    summary = summarize(RunBuilder().write(tmp_path))

    section = summary.document["step_time"]
    assert (section["diagnosis"]["kind"], summary.document["meta"]["mode"]) == ("NO_DATA", "no_data")
    assert summary.document["primary_diagnosis"]["kind"] == "INSUFFICIENT_STEP_TIME_DATA"
    assert section["global"]["window"]["start_step"] is None
    assert set(section["global"]["average"].values()) == {None}
    assert summary.text().startswith("NO DATA  info\nwhy   No training step was recorded.\n")


def test_both_files_are_written_into_the_run(tmp_path):
    """The JSON file holds the document and the text file the text; nothing else is left behind."""
    run = RunBuilder().rank(0, range(1, 25), input_wait=60.0).write(tmp_path)
    before = {path.name for path in run.iterdir()}

    summary = write_files(run, NOON)

    assert {path.name for path in run.iterdir()} - before == {"final_summary.json", "final_summary.txt"}
    assert json.loads((run / "final_summary.json").read_text()) == summary.document
    assert (run / "final_summary.txt").read_text() == summary.text() == summary.document["text"]


def test_an_older_summary_is_replaced(tmp_path):
    """The file is the new one, as a whole."""
    run = RunBuilder().rank(0, range(1, 25)).write(tmp_path)
    (run / "final_summary.json").write_text("x" * 1_000_000)

    write_files(run, NOON)

    assert json.loads((run / "final_summary.json").read_text())["generated_at"] == NOON.isoformat()


def test_a_directory_in_the_way_is_one_clear_error(tmp_path):
    """The message names the run, the reason and what to do; no partial file stays."""
    run = RunBuilder().rank(0, range(1, 25)).write(tmp_path)
    (run / "final_summary.json").mkdir()

    with pytest.raises(StoreError, match=r"not writable \(Is a directory\); `stepmeter summary"):
        write_files(run)

    assert list(run.glob(".final*")) == []
