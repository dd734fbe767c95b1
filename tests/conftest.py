"""Options of the whole suite."""

from __future__ import annotations

import pytest


def pytest_addoption(parser):
    """Golden files are rewritten on request only."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files after an intended change")


@pytest.fixture
def update_golden(request):
    """Whether golden files are to be rewritten."""
    return request.config.getoption("--update-golden")
