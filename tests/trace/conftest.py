import json

import pytest
from tests.support.stored import run_of_spans

from stepmeter.report.trace import Selection, write_trace


@pytest.fixture
def traced(tmp_path):
    """Write spans as a trace; gives its JSON."""

    def write(rows, **selected):
        output = tmp_path / "trace.json"
        write_trace(run_of_spans(tmp_path / "runs", rows), output, Selection(**selected))
        return json.loads(output.read_text(), parse_constant=pytest.fail)

    return write
