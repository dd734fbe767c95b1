from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stepmeter.report.reference import BRIEFS, KEYS, SECTION_METRICS, pages

ROOT = Path(__file__).parents[2]
SECTIONS = {"step_time", "step_memory", "system", "process", "energy"}
GOLDEN = ROOT / "tests" / "step_time" / "golden" / "step_time_public_schema.json"


def general(key):
    """A golden key with its section and metric named generally."""
    parts = key.removeprefix(".").split(".")
    if parts[0] in SECTIONS:
        parts[0] = "<section>"
    if "evidence" in parts:
        return ".".join([*parts[: parts.index("evidence") + 1], "*"])
    return ".".join("<metric>" if part in BRIEFS else part for part in parts)


def leaves():
    """Golden keys that hold values; an issue's are those of a diagnosis."""
    keys = {general(key) for key in json.loads(GOLDEN.read_text())["keys"]}
    keys = {re.sub(r"issues\[\]\..*", "issues[]", key) for key in keys} | {"<section>.issues[]"}
    return {key for key in keys if not any(other.startswith(f"{key}.") for other in keys)} - {"<section>.issues"}


def test_every_key_of_the_summary_is_explained_and_no_other():
    """The page and the golden keys are the same."""
    assert set(KEYS) == leaves()


def test_every_metric_is_explained_and_no_other():
    """Each section's metrics have a line."""
    assert set(BRIEFS) == {name for names in SECTION_METRICS.values() for name in names}


@pytest.mark.parametrize("path", pages(), ids=str)
def test_each_generated_page_is_what_the_code_says(path):
    """`make docs` writes it."""
    assert (ROOT / path).read_text(encoding="utf-8") == pages()[path]
