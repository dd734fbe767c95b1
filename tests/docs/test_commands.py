import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.support.processes import BIN, clean_environ

ROOT = Path(__file__).parent.parent.parent


def commands(page):
    return re.findall(r"^ {4}\$ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)


HOW_TO = [page for page in sorted((ROOT / "docs" / "how-to").glob("*.md")) if commands(page)]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs" / "tutorial").glob("*.md")),
    *(pytest.param(page, marks=pytest.mark.slow) for page in HOW_TO),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_shown_works(page, tmp_path):
    """The commands of a page, run one after the other as a reader would, all succeed."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environ = clean_environ(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}")

    assert commands(page)
    for command in commands(page):
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=100, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr


ALL_PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("collector-config/**/*.md")])


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """Every relative link of a page leads to a file that is there."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text(encoding="utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []
