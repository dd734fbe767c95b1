from __future__ import annotations

import pytest
from tests.support.one_run import OneRun


@pytest.fixture(scope="module")
def one_run(tmp_path_factory):
    """A run that the tests of a module fill in turn."""
    run = OneRun(tmp_path_factory.mktemp("runs"))
    yield run
    run.close()
