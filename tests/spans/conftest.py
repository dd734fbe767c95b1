import pytest
from tests.support.recorded import recorded_spans


@pytest.fixture
def recorded():
    """A recorder and a book of rows, for one test."""
    with recorded_spans(span_count=True) as found:
        yield found


@pytest.fixture
def recorder(recorded):
    return recorded[0]


@pytest.fixture
def book(recorded):
    return recorded[1]
