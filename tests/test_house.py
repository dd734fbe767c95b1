"""Rules of the house that no linter knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEST_FILES = sorted(ROOT.glob("tests/**/test_*.py"))


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_test_states_a_fact(path):
    """Every test has a docstring that says what holds, so that the docstrings read as the specification."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tests = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")]

    assert [test.name for test in tests if not ast.get_docstring(test)] == []


def test_the_top_level_is_the_agreed_one():
    """Nothing stands at the top level that the house does not name."""
    allowed = {
        *("pyproject.toml", "README.md", "src", "collector-config", "tests", "dashboards", "docs", "examples"),
        *("benchmarks", "Makefile", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"),
    }
    ours = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}

    assert not ours - allowed - {"stepmeter-runs", "build", "dist"}
