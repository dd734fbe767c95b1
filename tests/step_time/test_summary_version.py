"""The version of the summary, held against the golden file's history in git: editing the file by hand does not help."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest
from tests.step_time.golden_file import breaking

ROOT = Path(__file__).parents[2]
GOLDEN = "tests/step_time/golden/step_time_public_schema.json"


def git(*words, cwd=ROOT):
    done = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def revisions(cwd=ROOT):
    """The golden file as each commit left it, oldest first, and as it is now."""
    commits = (git("log", "--format=%H", "--reverse", "--", GOLDEN, cwd=cwd) or "").split()
    contents = [git("show", f"{commit}:{GOLDEN}", cwd=cwd) for commit in commits]
    return [json.loads(content) for content in contents if content] + [json.loads((cwd / GOLDEN).read_text())]


def unversioned(found):
    """Versions under which keys or nulls changed from one revision to another, however far apart."""
    return [
        (new["version"], changed[0])
        for old, new in itertools.combinations(found, 2)
        if old["version"] == new["version"] and (changed := breaking(old, new))
    ]


def test_no_version_ever_meant_two_things():
    """Over the whole history of the golden file, keys and nulls of one version are the same."""
    if git("rev-parse", "--git-dir") is None:
        pytest.skip("no git checkout: history is checked where there is one")

    assert unversioned(revisions()) == []


@pytest.fixture
def checkout(tmp_path):
    """A repository with a golden file, committed once."""
    (tmp_path / GOLDEN).parent.mkdir(parents=True)
    git("init", "--quiet", cwd=tmp_path)
    commit(tmp_path, {"version": "1.0", "keys": [".a", ".b"], "nulls": {}})
    return tmp_path


def commit(directory, content):
    (directory / GOLDEN).write_text(json.dumps(content))
    git("add", ".", cwd=directory)
    git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "x", cwd=directory)


def test_a_file_edited_by_hand_is_found_before_and_after_its_commit(checkout):
    """A key goes while the version stays: the history tells, whatever the file says of itself."""
    changed = {"version": "1.0", "keys": [".a"], "nulls": {}}
    (checkout / GOLDEN).write_text(json.dumps(changed))
    assert unversioned(revisions(checkout)) == [("1.0", ".b")]

    commit(checkout, changed)

    assert ("1.0", ".b") in unversioned(revisions(checkout))


def test_a_new_version_may_mean_something_new(checkout):
    """The same change under version 1.1 is fine."""
    commit(checkout, {"version": "1.1", "keys": [".a"], "nulls": {}})

    assert unversioned(revisions(checkout)) == []


def test_going_back_to_an_old_version_is_found(checkout):
    """1.0, 1.1, and 1.0 again with the keys of 1.1."""
    commit(checkout, {"version": "1.1", "keys": [".a"], "nulls": {}})
    commit(checkout, {"version": "1.0", "keys": [".a"], "nulls": {}})

    assert unversioned(revisions(checkout))
