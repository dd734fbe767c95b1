from __future__ import annotations

import re
from pathlib import Path

import pytest

from stepmeter.analysis import catalogue
from stepmeter.analysis.diagnosis.model import SEVERITIES
from stepmeter.cli import main

ROOT = Path(__file__).parents[2]
ENTRIES = list(catalogue.entries())


def test_it_lists_every_kind(capsys):
    """Each kind of each section has a line, with what it means below."""
    assert main(["diagnoses"]) == 0

    out = capsys.readouterr().out
    assert all(kind in out for entry in ENTRIES for kind in entry.kinds)
    assert "INPUT_BOUND" in out


@pytest.mark.parametrize("typed", ["INPUT_BOUND", "input-bound", "Input Bound"])
def test_it_explains_a_kind_however_it_is_typed(capsys, typed):
    """When it is given, why, what to try, and the numbers it goes by."""
    assert main(["diagnoses", "--explain", typed]) == 0

    out = capsys.readouterr().out
    assert out.startswith("INPUT_BOUND  (step time)\n")
    assert all(word in out for word in ("\nFires", "\nWhy", "\nNext", "Thresholds:"))
    assert max(len(line) for line in out.splitlines()) <= 100


def test_it_explains_a_name_that_sections_share(capsys):
    """NO_DATA stands in several sections, each with its own meaning."""
    assert main(["diagnoses", "--explain", "NO_DATA"]) == 0

    out = capsys.readouterr().out
    assert [section for section in ("step time", "step memory", "system", "process") if f"({section})" in out] == [
        "step time",
        "step memory",
        "system",
        "process",
    ]


def test_an_unknown_kind_is_a_usage_error_with_close_ones(capsys):
    """Exit code 2, one line, and what may have been meant."""
    assert main(["diagnoses", "--explain", "INPUT_BONUD"]) == 2
    assert capsys.readouterr().err == "stepmeter: no diagnosis 'INPUT_BONUD'; close: INPUT_BOUND, COMPUTE_BOUND\n"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.section}-{entry.kinds[0]}")
def test_every_rule_says_what_when_why_and_what_next(entry):
    """A title, a reason and a next step; whoever has a threshold says when it fires."""
    text = "\n".join(entry.paragraphs)

    assert entry.title.endswith(".")
    assert "*Next*" in text
    assert "*Why*" in text or entry.kinds[-1] == "NO_DATA"
    assert all(isinstance(value, int | float) for value in entry.thresholds.values())


def test_every_kind_that_code_gives_is_documented():
    """No kind in any rule's code is missing from the list."""
    known = {kind for entry in ENTRIES for kind in entry.kinds}
    source = ROOT / "src" / "stepmeter" / "analysis"
    given = {
        kind
        for path in source.rglob("*.py")
        for kind in re.findall(r'kind="([A-Z_]+)"', path.read_text(encoding="utf-8"))
    }

    assert given <= known
    assert SEVERITIES == ("info", "warn", "crit")


def test_the_reference_page_is_what_the_rules_say():
    """`make docs` writes it; whoever changes a rule changes the page."""
    page = ROOT / "docs" / "reference" / "diagnoses.md"

    assert page.read_text(encoding="utf-8") == catalogue.reference_page()


def test_it_prints_the_page(capsys):
    """Markdown on standard output, nothing else."""
    assert main(["diagnoses", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == catalogue.reference_page()
