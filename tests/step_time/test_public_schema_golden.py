"""The public keys of the summary, and which of its values are null: neither moves without SUMMARY_VERSION."""

from __future__ import annotations

import functools
import json
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pytest
from tests.step_time.golden_file import breaking
from tests.step_time.scenarios import SCENARIOS

from stepmeter.report.summary import SUMMARY_VERSION, summarize

GOLDEN = Path(__file__).parent / "golden" / "step_time_public_schema.json"
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


@functools.cache
def current():
    with tempfile.TemporaryDirectory() as directory:
        documents = {
            scenario.name: summarize(
                scenario.build().write(Path(directory), scenario.name, scenario.name), NOON
            ).document
            for scenario in SCENARIOS
        }
    return {
        "version": SUMMARY_VERSION,
        "keys": sorted({key for document in documents.values() for key in keys_of(document)}),
        "nulls": {name: nulls_of(document) for name, document in documents.items()},
    }


def keys_of(value, path=""):
    """Paths of all keys; rows and lists are written once, as `*`."""
    if isinstance(value, dict):
        for key, item in value.items():
            name = "*" if path.endswith((".rows", ".missing_steps", ".dropped")) else key
            yield f"{path}.{name}"
            yield from keys_of(item, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from keys_of(item, f"{path}[]")


def nulls_of(document):
    """For each metric, whether its statistics and each rank's value are null."""
    section = document["step_time"]
    pattern = {}
    for name in section["metadata"]["section_metric_names"]:
        totals, rows = section["global"], section["groups"]["rows"]
        pattern[name] = {
            "average": totals["average"][name] is None,
            "median": totals["median"][name]["value"] is None,
            "worst": totals["worst"][name]["value"] is None,
            **{f"rank {rank}": row["metrics"][name] is None for rank, row in rows.items()},
        }
    return pattern


def update(path, new):
    """Rewrite the golden file, unless that would change its meaning at an unchanged version."""
    old = json.loads(path.read_text()) if path.exists() else None
    changed = breaking(old, new) if old else []
    if changed and old["version"] == new["version"]:
        raise AssertionError(f"raise SUMMARY_VERSION (now {new['version']}) first: {', '.join(changed)} changed")
    path.write_text(json.dumps(new, indent=1) + "\n")


def test_golden_keys_and_null_pattern(update_golden):
    """The summary of every scenario has the keys and nulls of the golden file, written at the same version."""
    new = current()
    if update_golden:
        update(GOLDEN, new)

    assert json.loads(GOLDEN.read_text()) == new


@pytest.mark.parametrize("what", ["keys", "nulls"])
def test_golden_refuses_a_change_at_an_unchanged_version(tmp_path, what):
    """A key that goes, or a value that turns null, needs a new version; with one it is written."""
    path = tmp_path / "golden.json"
    new = current()
    update(path, new)
    before = path.read_text()
    changed = json.loads(before)
    if what == "keys":
        changed["keys"].pop()
    else:
        changed["nulls"]["complete_gpu"]["forward_ms"]["average"] = True

    with pytest.raises(AssertionError, match="raise SUMMARY_VERSION"):
        update(path, changed)

    assert path.read_text() == before
    update(path, changed | {"version": "9.9"})
    assert json.loads(path.read_text())["version"] == "9.9"


def test_golden_takes_a_new_scenario_without_a_new_version(tmp_path):
    """More scenarios with the same keys change nothing for a reader."""
    path = tmp_path / "golden.json"
    new = current()
    fewer = new | {"nulls": {name: nulls for name, nulls in new["nulls"].items() if name != "complete_gpu"}}
    update(path, fewer)

    update(path, new)

    assert "complete_gpu" in json.loads(path.read_text())["nulls"]
