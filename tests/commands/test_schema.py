import json
import shutil
from pathlib import Path

import pytest

from stepmeter import cli
from stepmeter.conventions import registry

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of stepmeter as far as `schema` looks at it."""
    for part in ("src/stepmeter/conventions", "src/stepmeter/store", "docs/reference"):
        shutil.copytree(ROOT / part, tmp_path / part)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_prints_the_vocabulary(capsys):
    """`stepmeter schema` prints the registry as JSON, or as a page."""
    assert cli.main(["schema"]) == 0
    assert registry.registry() == json.loads(capsys.readouterr().out)
    assert cli.main(["schema", "--format", "markdown"]) == 0
    assert "`stepmeter.step.duration`" in capsys.readouterr().out


def test_the_golden_vocabulary_passes(checkout, capsys):
    """The check passes on what is checked in."""
    assert cli.main(["schema", "--check"]) == 0
    capsys.readouterr()


def test_a_stale_page_fails(checkout, capsys):
    """The check fails when the reference page is not what the vocabulary says."""
    (checkout / "docs/reference/telemetry.md").write_text("old", encoding="utf-8")

    assert cli.main(["schema", "--check"]) == 5
    assert "make docs" in capsys.readouterr().err


def test_a_break_without_a_version_is_refused(checkout, capsys):
    """A golden file that holds a name which is gone is not rewritten at the same version."""
    path = checkout / "src/stepmeter/conventions/golden.json"
    older = registry.registry()
    older["metrics"]["stepmeter.gone"] = {"unit": "s"}
    path.write_text(json.dumps(older), encoding="utf-8")

    assert cli.main(["schema", "--update-golden"]) == 5
    assert "stepmeter.gone is gone" in capsys.readouterr().err
    assert older == json.loads(path.read_text(encoding="utf-8"))


def test_updating_elsewhere_is_refused(tmp_path, monkeypatch, capsys):
    """Outside a checkout there is nothing to rewrite, and that is one line."""
    monkeypatch.chdir(tmp_path)

    assert cli.main(["schema", "--update-golden"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
