"""pandas is loaded by nobody but the program."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("pandas") is None, reason="needs pandas")


def test_writing_rows_leaves_pandas_alone():
    """The first segment of a process does not load pandas, which takes half a second where it is installed."""
    program = (
        "import sys, tempfile, pathlib\n"
        "from stepmeter.store.segments import create_run\n"
        "create_run(pathlib.Path(tempfile.mkdtemp()), 'id', 'demo')\n"
        "assert 'pandas' not in sys.modules\n"
        "import pyarrow, pandas\n"
        "assert pyarrow.table({'a': [1]}).to_pandas()['a'][0] == 1\n"
        "assert pyarrow.array(pandas.Series([1, None])).null_count == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_program_of_ours_does_without_pandas():
    """Where the process is ours alone, pyarrow and DuckDB find no pandas, and work."""
    program = (
        "import sys\n"
        "from stepmeter.store.pandas import do_without_pandas\n"
        "do_without_pandas()\n"
        "import duckdb, pyarrow\n"
        "assert pyarrow.array([1]).null_count == 0\n"
        "assert duckdb.sql('SELECT 1').fetchnumpy()['1'][0] == 1\n"
        "assert 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
