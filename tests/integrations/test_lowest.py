"""The lowest versions that are followed: transformers 4.46.1 and Accelerate 0.26.0, beside the torch of these tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.processes import clean_environ

HERE = Path(__file__).parent
LOWEST = (
    "transformers==4.46.1",
    "accelerate==0.26.0",
    "tokenizers==0.20.3",
    "huggingface_hub==0.26.5",
    "datasets==3.6.0",
)
"""With what they need in versions of their time; the rest is that of these tests."""


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="tokenizers of that time has no wheel for newer Pythons")
def test_the_lowest_versions(tmp_path):
    """All that holds with the newest transformers and Accelerate holds with the lowest, but what they do themselves."""
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "old", *LOWEST],
        check=True,
        timeout=300,
    )
    files = [HERE / f"test_{name}.py" for name in ("accelerate", "huggingface", "huggingface_attempts")]
    done = subprocess.run(
        # what fails always, and not once, is left to the newest
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not 1000000", *files],
        env=clean_environ(
            PYTHONPATH=os.pathsep.join([str(tmp_path / "old"), str(HERE.parent.parent)]),
            TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1",  # they load checkpoints as torch before 2.6 did
        ),
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-5000:]
    assert (
        "4.46.1"
        in subprocess.run(
            [sys.executable, "-c", "import transformers; print(transformers.__version__)"],
            env=clean_environ(PYTHONPATH=str(tmp_path / "old")),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
