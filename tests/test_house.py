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


HOMES = {
    "torch": {"instrumentation", "integrations", "plugins"},
    "opentelemetry.sdk": {"telemetry"},
    "opentelemetry.exporter": {"telemetry"},
    "opentelemetry.proto": {"collector", "telemetry"},
    "opentelemetry.instrumentation": {"runtime"},
    "grpc": {"collector"},
    "duckdb": {"store"},
    "pyarrow": {"store"},
    "numpy": {"store", "analysis", "collector"},
    "rich": {"report", "live", "commands"},
    "pynvml": {"devices", "samplers"},
    "psutil": {"samplers"},
    "wrapt": {"instrumentation", "integrations"},
    "yaml": {"collector"},
    "orjson": {"collector"},
    "lark": {"alerts"},
}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", HOMES)
def test_outside_packages_have_their_homes(package):
    """Each outside package is imported in the rooms that are its home and in no other."""
    source = ROOT / "src" / "stepmeter"
    found = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if any(name == package or name.startswith(f"{package}.") for name in imports_of(path))
    }

    assert not found - HOMES[package]
